#include "dispatch.hpp"

#include <stdexcept>

namespace undirected {
namespace {

bool machine_has_avx2() {
#if defined(__x86_64__) && defined(HAVE_AVX2_KERNELS)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
#else
    return false;
#endif
}

const char* name_of(InstructionSet set) { return set == InstructionSet::AVX2 ? "avx2" : "baseline"; }

std::vector<InstructionSet> available() {
    std::vector<InstructionSet> out{InstructionSet::BASELINE};
    if (machine_has_avx2()) out.push_back(InstructionSet::AVX2);
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
