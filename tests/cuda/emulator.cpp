/* emulator.cpp - see emulator.h.
 *
 * Fibers are kept: a lane takes an idle one, and one that ends gives its own back, so kernels whose
 * lanes never meet run on a single fiber. The first entry of a fiber is makecontext's; later
 * switches are _setjmp and _longjmp, which ask nothing of the kernel. AddressSanitizer is told of
 * every change of stacks, and libc's own _longjmp is called: the sanitizer's takes what lies on the
 * stack for gone, at the price of system calls. */
#undef _FORTIFY_SOURCE /* Ubuntu's compiler defines it: its _longjmp refuses to change stacks */
#include "tests/cuda/emulator.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <ucontext.h>
#include <memory>
#include <mutex>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <dlfcn.h>
#include <sanitizer/common_interface_defs.h>
#endif

emulated_index threadIdx, blockIdx, blockDim, gridDim;

namespace
{

constexpr size_t STACK_BYTES = 128 << 10;

struct fiber {
    ucontext_t context;
    jmp_buf resume;
    std::vector<char> stack;
    bool is_entered = false;
    void *frames = nullptr; /* AddressSanitizer's */
};

enum lane_state { FRESH, RUNNING, WAITING, ENDED };

struct lane {
    fiber *on = nullptr;
    lane_state state = FRESH;
    bool is_at_block_barrier = false;
};

struct warp {
    unsigned arrived = 0, lanes = 0;
    emulated_meeting what = MEET_WARP;
    unsigned turn = 0; /* which of `words` the next meeting fills */
    uint64_t words[2][32];
};

std::vector<std::unique_ptr<fiber>> fibers; /* owns them */
std::vector<fiber *> idle;
std::vector<lane> lanes;
std::vector<warp> warps;
unsigned current, at_barrier;
void (*body)(void *);
void *body_arg;
jmp_buf scheduler_resume;
std::mutex one_launch; /* at a time: shards of a process launch from threads of their own */
[[noreturn]] void stop(const char *why)
{
    fprintf(stderr, "emulator: block %u, lane %u: %s\n", blockIdx.x, current, why);
    abort();
}

/* The stack that is left, and the one that is come to. */
#ifdef __SANITIZE_ADDRESS__
const void *scheduler_bottom;
size_t scheduler_bytes;
void *scheduler_frames;
void (*jump)(jmp_buf, int) = reinterpret_cast<void (*)(jmp_buf, int)>(
    dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "_longjmp"));

void leave_fiber(fiber *f)
{
    __sanitizer_start_switch_fiber(&f->frames, scheduler_bottom, scheduler_bytes);
}
void leave_scheduler(fiber *f)
{
    __sanitizer_start_switch_fiber(&scheduler_frames, f->stack.data(), STACK_BYTES);
}
void come_to_fiber(fiber *f)
{
    __sanitizer_finish_switch_fiber(f->frames, &scheduler_bottom, &scheduler_bytes);
}
void come_to_scheduler()
{
    __sanitizer_finish_switch_fiber(scheduler_frames, nullptr, nullptr);
}
#else
void (*jump)(jmp_buf, int) = _longjmp;
void leave_fiber(fiber *)
{
}
void leave_scheduler(fiber *)
{
}
void come_to_fiber(fiber *)
{
}
void come_to_scheduler()
{
}
#endif

void to_scheduler(fiber *f)
{
    if (_setjmp(f->resume) == 0) {
        leave_fiber(f);
        jump(scheduler_resume, 1);
    }
    come_to_fiber(f);
}
void to_fiber(fiber *f)
{
    if (_setjmp(scheduler_resume) != 0) {
        come_to_scheduler();
        return;
    }
    leave_scheduler(f);
    if (f->is_entered)
        jump(f->resume, 1);
    f->is_entered = true;
    setcontext(&f->context);
}

void fiber_main()
{
    come_to_fiber(lanes[current].on);
    for (;;) {
        body(body_arg);
        lane &l = lanes[current];
        fiber *f = l.on;
        l.state = ENDED;
        l.on = nullptr;
        idle.push_back(f);
        to_scheduler(f);
    }
}

fiber *fiber_take()
{
    if (!idle.empty()) {
        fiber *f = idle.back();
        idle.pop_back();
        return f;
    }
    fibers.push_back(std::make_unique<fiber>());
    fiber *f = fibers.back().get();
    f->stack.resize(STACK_BYTES);
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack.data();
    f->context.uc_stack.ss_size = f->stack.size();
    f->context.uc_link = nullptr;
    makecontext(&f->context, fiber_main, 0);
    return f;
}

void wait_here()
{
    unsigned me = current;
    fiber *f = lanes[me].on;
    lanes[me].state = WAITING;
    to_scheduler(f);
    current = me;
    threadIdx.x = me;
}

void release(unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++)
        if (lanes[i].state == WAITING)
            lanes[i].state = RUNNING;
}

/* Lets every lane that can run do so until it waits or ends. False: none could. */
bool turn(unsigned offset)
{
    bool any = false;
    unsigned n = (unsigned)lanes.size();
    for (unsigned i = 0; i < n; i++) {
        unsigned at = (i + offset) % n;
        lane &l = lanes[at];
        if (l.state == WAITING || l.state == ENDED)
            continue;
        any = true;
        if (l.state == FRESH)
            l.on = fiber_take();
        l.state = RUNNING;
        current = at;
        threadIdx.x = at;
        to_fiber(l.on);
    }
    return any;
}

void run_block(unsigned block)
{
    lanes.assign(block, lane());
    warps.assign((block + 31) / 32, warp());
    for (unsigned w = 0; w < warps.size(); w++)
        warps[w].lanes = block - w * 32 < 32 ? block - w * 32 : 32;
    at_barrier = 0;
    unsigned offset = blockIdx.x * 37u + block * 11u;
    while (turn(offset))
        offset += 13;
    for (current = 0; current < block; current++)
        if (lanes[current].state != ENDED)
            stop("waits for a lane that will never come");
}

} // namespace

void emulator_run(unsigned grid, unsigned block, void (*to_run)(void *), void *arg)
{
    if (grid == 0 || block == 0 || block > 1024)
        stop("no such launch");
    std::lock_guard<std::mutex> launch(one_launch);
    body = to_run;
    body_arg = arg;
    gridDim.x = grid;
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
        run_block(block);
}

const uint64_t *emulator_meet(emulated_meeting what, uint64_t word)
{
    unsigned me = current, first = me / 32 * 32;
    warp &w = warps[me / 32];
    if (w.arrived > 0 && w.what != what)
        stop("meets its warp at another place than the others");
    unsigned turn_of_words = w.turn;
    w.what = what;
    w.words[turn_of_words][me % 32] = word;
    if (++w.arrived == w.lanes) {
        w.arrived = 0;
        w.turn = 1 - w.turn;
        release(first, w.lanes);
    } else {
        wait_here();
    }
    return warps[me / 32].words[turn_of_words];
}

void emulator_meet_block()
{
    if (++at_barrier == lanes.size()) {
        at_barrier = 0;
        release(0, (unsigned)lanes.size());
    } else {
        wait_here();
    }
}
