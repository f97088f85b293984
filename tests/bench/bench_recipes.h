// The default recipes for benchmarks of whole steps. All such benchmarks use them, so that they
// measure the same nets.
#pragma once

namespace reprise::bench {

// With batch 4 a step takes half a second.
constexpr const char* kResNet50 =
    R"({"name": "resnet50-224", "model": {"family": "resnet", "block": "bottleneck", "units": [3, 4, 6, 3], "width": 64, "stem": "imagenet",
    "classes": 1000, "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "batch": 4, "steps": 1, "seed": 1,
    "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}})";
constexpr const char* kResNet20 =
    R"({"name": "resnet20-128", "model": {"family": "resnet", "block": "basic", "units": [3, 3, 3], "width": 16, "stem": "cifar",
    "classes": 10, "image": [28, 28, 1]}, "data": {"kind": "synthetic"}, "batch": 128, "steps": 1, "seed": 1,
    "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": true, "weight_decay": 5e-4}})";
constexpr const char* kGpt =
    R"({"name": "gpt-4x128", "model": {"family": "gpt2", "vocab_size": 256, "n_positions": 128, "n_embd": 128, "n_layer": 4, "n_head": 4},
    "data": {"kind": "synthetic"}, "batch": 16, "sequence": 128, "steps": 1, "seed": 1, "clip_norm": 1.0,
    "optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01}})";
constexpr const char* kGpt2Small =
    R"({"name": "gpt2-small", "model": {"family": "gpt2", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "data": {"kind": "synthetic"}, "batch": 4, "sequence": 256, "steps": 1, "seed": 1,
    "optimizer": {"name": "adamw", "lr": 1e-5, "weight_decay": 0.01}})";

}  // namespace reprise::bench
