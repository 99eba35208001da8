#include <gtest/gtest.h>

#include "cli/arguments.h"

namespace llmem {
namespace {

Arguments read(const std::vector<std::string>& words) {
  const ReadArguments r = read_arguments(words);
  EXPECT_EQ(r.error, "");
  return r.arguments;
}

std::string error(const std::vector<std::string>& words) { return read_arguments(words).error; }

TEST(Arguments, Commands) {
  EXPECT_EQ(read({"estimate"}).command, Command::estimate);
  EXPECT_EQ(read({"events", "spec.json"}).file, "spec.json");
  EXPECT_EQ(read({"explain", "-"}).file, "-");
  EXPECT_EQ(read({"--help"}).command, Command::help);
  EXPECT_EQ(read({"explain", "-h"}).command, Command::help);
  EXPECT_EQ(read({"--version"}).command, Command::version);
}

TEST(Arguments, OptionsOfExplain) {
  const Arguments a = read({"explain", "--at", "step0.forward0", "--events=40", "spec.json", "--top", "3"});
  EXPECT_EQ(a.command, Command::explain);
  EXPECT_EQ(a.at, "step0.forward0");
  EXPECT_EQ(a.events, 40);
  EXPECT_EQ(a.top, 3);
  EXPECT_EQ(a.file, "spec.json");
  EXPECT_FALSE(read({"explain"}).at);
}

TEST(Arguments, SaysWhatIsWrong) {
  EXPECT_EQ(error({}), "a command is missing: estimate, explain, events, parameters, families, search, largest, advise or paper");
  EXPECT_EQ(error({"guess"}),
            "\"guess\" is not a command: estimate, explain, events, parameters, families, search, largest, advise or paper");
  EXPECT_EQ(error({"explain", "--at"}), "--at wants a value");
  EXPECT_EQ(error({"explain", "--events", "-1"}), "--events wants a number of 0 or more, not \"-1\"");
  EXPECT_EQ(error({"explain", "--events", "9999999999999999999999"}),
            "--events wants a number of 0 or more, not \"9999999999999999999999\"");
  EXPECT_EQ(error({"explain", "--top", "many"}), "--top wants a number of 0 or more, not \"many\"");
  EXPECT_EQ(error({"explain", "--colour"}), "explain has no option --colour");
  EXPECT_EQ(error({"estimate", "--at", "loaded"}), "estimate has no option --at; explain has");
  EXPECT_EQ(error({"events", "a.json", "b.json"}), "one file is read at a time; \"b.json\" is a second one");
}

}  // namespace
}  // namespace llmem
