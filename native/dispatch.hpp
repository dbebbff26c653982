// The choice between the instruction sets for which the hot loops are compiled. It is made here and nowhere else.
//
// Files named *_kernels.cpp are compiled once per instruction set, each time into a namespace of that name. Their headers declare
// the kernels by UNDIRECTED_FOR_EACH_INSTRUCTION_SET; whoever needs one calls it by UNDIRECTED_DISPATCH.
#pragma once
#include <atomic>
#include <string>
#include <vector>

namespace undirected {

enum class InstructionSet { BASELINE, AVX2, AVX512 };

// The one in use. At first the best that this machine has.
extern std::atomic<InstructionSet> chosen_instruction_set;

// Those that this machine can run, by name, the plainest first.
std::vector<std::string> instruction_sets();
// The name of the one in use.
std::string instruction_set();
// Chooses one by name; throws std::invalid_argument where this machine does not have it.
void set_instruction_set(const std::string& name);

}  // namespace undirected

#define UNDIRECTED_FOR_EACH_INSTRUCTION_SET(DECLARE) DECLARE(baseline) DECLARE(avx2) DECLARE(avx512)

#if defined(HAVE_X86_KERNELS)
#define UNDIRECTED_DISPATCH(call)                                                                                                        \
    (undirected::chosen_instruction_set.load(std::memory_order_relaxed) == undirected::InstructionSet::AVX512 ? undirected::avx512::call \
     : undirected::chosen_instruction_set.load(std::memory_order_relaxed) == undirected::InstructionSet::AVX2                            \
         ? undirected::avx2::call                                                                                                        \
         : undirected::baseline::call)
#else
#define UNDIRECTED_DISPATCH(call) (undirected::baseline::call)
#endif
