#include "dispatch.hpp"

#include <stdexcept>

namespace undirected {
namespace {

const char* name_of(InstructionSet set) {
    switch (set) {
        case InstructionSet::AVX512: return "avx512";
        case InstructionSet::AVX2: return "avx2";
        default: return "baseline";
    }
}

std::vector<InstructionSet> available() {
    std::vector<InstructionSet> out{InstructionSet::BASELINE};
#if defined(HAVE_X86_KERNELS)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bw");
    if (avx2) out.push_back(InstructionSet::AVX2);
    if (avx2 && avx512) out.push_back(InstructionSet::AVX512);
#endif
    return out;
}

}  // namespace

std::atomic<InstructionSet> chosen_instruction_set{available().back()};

std::vector<std::string> instruction_sets() {
    std::vector<std::string> out;
    for (const InstructionSet set : available()) out.emplace_back(name_of(set));
    return out;
}

std::string instruction_set() { return name_of(chosen_instruction_set.load()); }

void set_instruction_set(const std::string& name) {
    std::string names;
    for (const InstructionSet set : available()) {
        if (name == name_of(set)) {
            chosen_instruction_set.store(set);
            return;
        }
        names += (names.empty() ? "" : ", ") + std::string(name_of(set));
    }
    throw std::invalid_argument("no instruction set '" + name + "' is compiled in and on this machine; choose among: " + names);
}

}  // namespace undirected
