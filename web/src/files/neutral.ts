import type { Draft, Section } from './draft';

// Settings that do not decide what a training step holds on the GPU, by what their names say, with the reason that is shown.

type Reason = readonly [RegExp, string];

const reasons: readonly Reason[] = [
  [
    /^(wandb|mlflow|hf_mlflow|comet|swanlab|trackio|tensorboard|otel|gradio|ray|clearml|aim|neptune|one_logger|app_tag)_|^(report_to|run_name|project|logger|metric_logger|use_(wandb|mlflow|comet|trackio|tensorboard|otel_metrics|ray|swanlab|adam_mini_log)|monitor_config|tensorboard|csv_monitor|wandb|comet|plot_loss|disable_tqdm|logging|log|log_.*|.*_log_.*|logging_.*|print_.*|steps_per_print|wall_clock_breakdown|dump_state|memory_breakdown|include_(num_input_tokens_seen|tokens_per_second|tkps|effective_tokens_per_second)|timing_log_.*|debug|verbose|metrics|profil.*|profiler|profiling|flops_profiler|enable_torch_profiler|comms_logger|skip_memory_metrics)$/,
    'logging and profiling: no tensor of the step',
  ],
  [
    /^(output_dir|logging_dir|overwrite_output_dir|save|save_.*|saves_per_epoch|load|load_.*_ckpt|load_best_model_at_end|push_to_hub.*|hub_.*|checkpoint|checkpointer|.*_checkpointer|resume_from_checkpoint|auto_resume_from_checkpoints|no_save_.*|no_load_.*|ckpt_.*|dist_ckpt_.*|use_dist_ckpt.*|async_save|use_checkpoint_.*|exit_.*|non_persistent_.*|finetune|pretrained_checkpoint|dump_folder|job|dynamic_checkpoint|merge_(lora|method)|export_.*|ignore_data_skip|enable_jit_checkpoint|create_model_card|finetune_.*|auto_detect_ckpt_format|experiment_name|.*gather_(fp16|16bit)_weights_on_model_save|zero3_save_16bit_model)$/,
    'where and when it is saved, not what the step holds',
  ],
  [
    /^(datasets?|dataset_.*|test_datasets|eval_dataset|train_dataset|pretraining_dataset|data|data_.*|dataloader.*|dataloader|num_workers|preprocess.*|is_preprocess|max_samples|overwrite_cache|cache_dir|media_dir|tokenized_path|streaming.*|streaming|buffer_size|mix_strategy|interleave_probs|template|chat_template.*|tool_format|default_system.*|enable_thinking|preserve_thinking|shuffle.*|val_size|val_set_size|train_on_(inputs|prompt)|mask_history|ignore_pad_token_for_loss|special_tokens|tokens|added_tokens_overrides|add_tokens|eot_tokens|.*_token(s|_id|_ids)?|tokenizer.*|split|mock_data|train_data_path|valid_data_path|test_data_path|vocab_file|merge_file|reset_.*|eod_mask_loss|seed|data_seed|full_determinism|deterministic.*|group_by_length|length_column_name|label_names|remove_unused_columns|assistant_only_loss|completion_only_loss|truncation_mode|train_sampling_strategy|sampler|collate_fn|curriculum_sampling|roles_to_train|train_on_eos|role_boundaries|excess_length_strategy|min_sample_len|skip_prepare_dataset|no_create_attention_mask_in_dataloader|create_attention_mask.*|packing_buffer|multipack_.*|sample_packing_.*|field_.*|image_.*|video_.*|audio_.*|use_audio_in_video|num_dataset_builder_threads|no_mmap_bin_files|dataset_kwargs|add_generation_prompt|columns|example.*|pad_token.*|new_special_tokens_config|init_special_tokens|split_special_tokens|batch_size_val|dataset_val|data_shared_file_system|fix_untrained_tokens|system_prompt|save_data)$/,
    'what the rows say, not how long they are',
  ],
  [
    /^(learning_rate|lr|lr_.*|min_lr|max_lr|.*_lr|decoupled_(lr|min_lr)|warmup.*|warmup|scheduler|lr_scheduler.*|num_(train_)?epochs|epochs|num_epochs|max_steps.*|steps|train_iters|train_samples|total_steps|adam_.*|beta1|beta2|betas|eps|weight_decay_.*|start_weight_decay|end_weight_decay|cosine_.*|loraplus_.*|embedding_lr.*|lora_alpha|lora_scale|use_rslora|peft_use_rslora|rslora|lora_(init|alpha_pattern).*|peft_init_lora_weights|pissa_.*|neftune_noise_alpha|init_method.*|num_cycles|sgd_momentum|lion_beta.*|muon_.*|jagged_.*|override_opt_param_scheduler|use_checkpoint_opt_param_scheduler|relora_.*|lora_fan_in_fan_out|reinit_weights|random_init|loss_scale.*|initial_.*|min_loss_scale|hysteresis|optim_args|max_steps_per_epoch|epoch.*)$/,
    'how far a step goes or how many there are, not what it holds',
  ],
  [
    /^(eval_.*|evals_per_epoch|evaluation_.*|do_(eval|predict|bench_eval|causal_lm_eval)|per_device_eval_batch_size|eval_batch_size|early_stopping.*|metric_for_best_model|greater_is_better|prediction_loss_only|bench_.*|compute_accuracy|predict_with_generate|batch_eval_metrics|include_for_metrics|bf16_full_eval|fp16_full_eval|loss_watchdog_.*|run_val_every_n_steps|validation|test_split_size|generat.*|num_generation_samples|full_validation|skip_train|validation_.*)$/,
    'evaluation, between steps: not part of the step that is played',
  ],
  [
    /^(strict|do_train|trust_remote_code|hf_.*|ms_hub_token|om_hub_token|.*_hub_token|model_revision|revision_of_model|model_type|type_of_model|is_(llama|mistral|qwen|falcon)_derived_model|use_fast_tokenizer|low_cpu_mem_usage|cls_model_config|processor_.*|base_model_ignore_patterns|plugins|device|device_map|local_rank|ddp_timeout|ddp_backend|nccl_.*|distributed_(timeout.*|backend)|init_timeout_seconds|comm|torchdistx_path|accelerator_config|tf32|allow_tf32|use_cpu|no_cuda|use_ipex|jit_mode_eval|debug.*|push_dataset_to_hub|auto_find_.*|average_tokens_across_devices|torch_empty_cache_steps|gc_.*|gc_steps|disable_gc|manual_gc.*|empty_unused_memory_level|cuda_.*|rope_scaling|noisy_embedding_alpha|label_smoothing_loss|router_aux_loss_coef|moe_aux_loss_.*|output_router_logits|use_dft_loss|use_eaft.*|eaft_.*|experiment.*|description|print_args|custom_.*|fault_tolerance|ft_.*|elasticity|aio|autotuning|nebula|communication_data_type|prescale_gradients|gradient_predivide_factor|sparse_gradients|zero_allow_untested_optimizer|zero_force_ds_cpu_optimizer|scale_.*|tag_validation|timers|check_for_nan.*|no_check_for_.*|use_kernels|hub)$/,
    'how it is run, not what the step holds',
  ],
  [
    /^(rl|grpo|langrl|inference|perform_rl|vllm|sglang)_|_inference_|^(temperature|top_[kp]|prompt|tasks|limit|num_beams|max_new_tokens|do_sample|out_seq_length|num_samples)$/,
    'generation and rollouts: not part of the step that is played',
  ],
  [
    /^(compute_environment|machine_rank|main_process_.*|main_training_function|rdzv_.*|same_network|tpu_.*|downcast_bf16|enable_cpu_affinity|gpu_ids|command_file|commands|mpirun_config|fp8_backend|dynamo_backend|deepspeed_(multinode_launcher|hostfile|inclusion_filter|exclusion_filter)|max_restarts|monitor_interval|master_.*|nnodes_.*|node_rank|log_dir|role|tee|module|num_cpu_threads_per_process|quiet|rdzv|tpu)$/,
    'how the processes find each other',
  ],
];

/** Why a setting of this name does not matter; undefined: nothing is known of it. */
export function whyNeutral(name: string): string | undefined {
  return reasons.find(([pattern]) => pattern.test(name.toLowerCase().replaceAll('-', '_')))?.[1];
}

/** The keys of a section that nothing has read: each with its reason, or named as unknown. */
export function ignoreRest(draft: Draft, section: Section, own: Record<string, string>, tool: string): void {
  for (const entry of section.rest()) {
    const name = (entry.key.split('.').at(-1) ?? entry.key).replace(/^--/, '').replaceAll('-', '_');
    draft.ignored(
      entry,
      (Object.hasOwn(own, name) ? own[name] : undefined) ??
        whyNeutral(name) ??
        `not a setting of ${tool} that is known here: it may matter`,
    );
  }
}
