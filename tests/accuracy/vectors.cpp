// Scores estimates against vectors: training steps of real PyTorch, with what its allocator counted at every point.
//
//     vectors TARGETS.json VECTORS.jsonl…     prints a line a group and the worst cases; fails where a target of that file is missed
//
// A target: {"first": {"answered": 1.0, "peaks_exact": 0.9, "peak_off": 0.005, …}}, by the file's name; the README says what each means.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "embedded_presets.h"
#include "report/estimate.h"

namespace {

using Json = nlohmann::json;

struct Score {
  std::string id;
  bool answered = false;
  bool same_points = false;
  bool peaks_equal = false;                              // peak_allocated of every point, to the byte
  int points = 0, peak_points = 0, reserved_points = 0;  // all, and those with equal peak_allocated and peak_reserved
  double peak_off = 0, reserved_off = 0;                 // the largest relative errors
  std::string note;                                      // the first difference, or why there is no answer
};

double relative(std::int64_t ours, std::int64_t theirs) {
  return theirs == 0 ? (ours == 0 ? 0 : 1) : std::abs(static_cast<double>(ours - theirs)) / static_cast<double>(theirs);
}

void compare_point(const Json& ours, const Json& theirs, Score& score) {
  const auto both = [&](const char* key) { return std::pair(ours[key].get<std::int64_t>(), theirs[key].get<std::int64_t>()); };
  const auto [peak, true_peak] = both("peak_allocated");
  const auto [reserved, true_reserved] = both("peak_reserved");
  ++score.points;
  score.peak_points += peak == true_peak;
  score.reserved_points += reserved == true_reserved;
  score.peak_off = std::max(score.peak_off, relative(peak, true_peak));
  score.reserved_off = std::max(score.reserved_off, relative(reserved, true_reserved));
  if (score.note.empty() && peak != true_peak)
    score.note = theirs["at"].get<std::string>() + " peaks at " + std::to_string(peak) + ", PyTorch at " + std::to_string(true_peak);
}

Score score_of(const Json& vector) {
  Score score;
  score.id = vector["id"];
  const Json answer = llmem::parse_json(llmem::estimate(vector["spec"].dump(), llmem::embedded_presets())).value;
  if (!answer.value("ok", false)) {
    for (const Json& problem : answer["problems"])
      score.note += problem["at"].get<std::string>() + " " + problem["code"].get<std::string>() + "  ";
    return score;
  }
  score.answered = true;
  const Json& rank = answer["value"]["ranks"][0];
  const bool late = vector["expected"].value("late", false);
  if (late && rank["late"].is_null()) {
    score.note = "no stream uses another's memory";
    return score;
  }
  const Json& ours = late ? rank["late"]["points"] : rank["points"];
  const Json& theirs = vector["expected"]["points"];
  // A run that failed for want of memory ends early, on both sides at the same point.
  score.same_points = ours.size() == theirs.size();
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    if (ours[i]["at"] != theirs[i]["at"]) {
      score.same_points = false;
      break;
    }
    compare_point(ours[i], theirs[i], score);
  }
  if (!score.same_points && score.note.empty()) score.note = "other points than PyTorch's";
  score.peaks_equal = score.same_points && score.peak_points == score.points;
  return score;
}

struct Summary {
  int vectors = 0, answered = 0, peaks_equal = 0, points = 0, peak_points = 0, reserved_points = 0;
  double peak_off = 0, reserved_off = 0;
  bool same_points = true;

  void add(const Score& s) {
    ++vectors;
    if (!s.answered) return;
    ++answered;
    peaks_equal += s.peaks_equal;
    points += s.points;
    peak_points += s.peak_points;
    reserved_points += s.reserved_points;
    peak_off = std::max(peak_off, s.peak_off);
    reserved_off = std::max(reserved_off, s.reserved_off);
    same_points = same_points && s.same_points;
  }
};

double share(int part, int whole) { return whole == 0 ? 0 : static_cast<double>(part) / whole; }

void print(const std::string& name, const Summary& s) {
  std::printf(
      "%-24s %4d vectors, %4d answered: all peaks equal in %4d; points: peak equal %5.1f %%, worst %.4f %%; reserved equal %5.1f %%, worst "
      "%.4f %%\n",
      name.c_str(), s.vectors, s.answered, s.peaks_equal, 100 * share(s.peak_points, s.points), 100 * s.peak_off,
      100 * share(s.reserved_points, s.points), 100 * s.reserved_off);
}

void print_worst(std::vector<Score> scores) {
  std::stable_sort(scores.begin(), scores.end(), [](const Score& a, const Score& b) {
    return std::max(a.peak_off, a.reserved_off) > std::max(b.peak_off, b.reserved_off);
  });
  int shown = 0;
  for (const Score& s : scores) {
    if (!s.answered || (s.peaks_equal && s.reserved_points == s.points) || ++shown > 5) continue;
    std::printf("    %-24s peak off %.4f %%, reserved off %.4f %%  %s\n", s.id.c_str(), 100 * s.peak_off, 100 * s.reserved_off,
                s.note.c_str());
  }
  std::map<std::string, int> unanswered;
  for (const Score& s : scores)
    if (!s.answered) ++unanswered[s.note];
  for (const auto& [why, count] : unanswered) std::printf("    %d not answered: %s\n", count, why.c_str());
}

// Each missed target is a failed test.
std::pair<int, int> check(const Json& target, const Summary& s) {
  int passed = 0, failed = 0;
  const auto require = [&](const char* name, double value, bool at_least) {
    if (!target.contains(name)) return;
    const double wanted = target[name];
    const bool ok = at_least ? value >= wanted : value <= wanted;
    ok ? ++passed : ++failed;
    if (!ok) std::printf("    MISSED %s: %g, wanted %s %g\n", name, value, at_least ? "at least" : "at most", wanted);
  };
  require("answered", share(s.answered, s.vectors), true);
  require("same_points", s.same_points ? 1 : 0, true);
  require("vectors_exact", share(s.peaks_equal, s.answered), true);
  require("peaks_exact", share(s.peak_points, s.points), true);
  require("peak_off", s.peak_off, false);
  require("reserved_exact", share(s.reserved_points, s.points), true);
  require("reserved_off", s.reserved_off, false);
  return {passed, failed};
}

std::string name_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string file = slash == std::string::npos ? path : path.substr(slash + 1);
  return file.substr(0, file.find('.'));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: vectors TARGETS.json VECTORS.jsonl...\n");
    return 2;
  }
  std::ifstream target_file(argv[1]);
  const std::string target_text((std::istreambuf_iterator<char>(target_file)), {});
  const Json targets = llmem::parse_json(target_text).value;
  int passed = 0, failed = 0;
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i]);
    if (!file) {
      std::fprintf(stderr, "%s cannot be read\n", argv[i]);
      return 2;
    }
    std::map<std::string, std::vector<Score>> groups;
    Summary all;
    for (std::string line; std::getline(file, line);) {
      if (line.empty()) continue;
      const Json vector = llmem::parse_json(line).value;
      if (!vector.contains("expected")) continue;  // the oracle could not run it
      const Score score = score_of(vector);
      groups[score.id.substr(0, score.id.find('/'))].push_back(score);
      all.add(score);
    }
    const std::string name = name_of(argv[i]);
    print(name, all);
    for (const auto& [group, scores] : groups) {
      Summary summary;
      for (const Score& s : scores) summary.add(s);
      if (groups.size() > 1) print("  " + group, summary);
      print_worst(scores);
    }
    if (!targets.contains(name)) continue;
    const auto [ok, bad] = check(targets[name], all);
    passed += ok;
    failed += bad;
  }
  std::printf("accuracy: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
