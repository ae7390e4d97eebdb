/* emulator.cpp - see emulator.h.
 *
 * Fibers are kept. One that ends its lane goes on with the next fresh one, so kernels whose lanes
 * never meet run on a single fiber; one that waits jumps to the lane whose turn it is. The first
 * entry of a fiber is makecontext's; later switches are _setjmp and _longjmp, which ask nothing of
 * the kernel. AddressSanitizer is told of every change of stacks, and libc's own _longjmp is
 * called: the sanitizer's takes what lies on the stack for gone, at the price of system calls. This
 * file itself is compiled without sanitizers, since half of what kernels take there is here. */
#undef _FORTIFY_SOURCE /* Ubuntu's compiler defines it: its _longjmp refuses to change stacks */
#include "tests/cuda/emulator.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <ucontext.h>
#include <memory>
#include <mutex>
#include <vector>

#ifdef EMULATOR_SANITIZED
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
unsigned n_left, offset; /* lanes of this turn that were not looked at; where the turn began */
bool any_ran;            /* in this turn */
void (*body)(void *);
void *body_arg;
fiber launcher;        /* the launching thread's own stack */
std::mutex one_launch; /* at a time: shards of a process launch from threads of their own */
[[noreturn]] void stop(const char *why)
{
    fprintf(stderr, "emulator: block %u, lane %u: %s\n", blockIdx.x, current, why);
    abort();
}

/* The stack that is left, and the one that is come to. */
#ifdef EMULATOR_SANITIZED
bool is_from_launcher;
const void *launcher_bottom;
size_t launcher_bytes;
void (*jump)(jmp_buf, int) = reinterpret_cast<void (*)(jmp_buf, int)>(
    dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "_longjmp"));

void leave(fiber *from, fiber *to)
{
    is_from_launcher = from == &launcher;
    if (to == &launcher)
        __sanitizer_start_switch_fiber(&from->frames, launcher_bottom, launcher_bytes);
    else
        __sanitizer_start_switch_fiber(&from->frames, to->stack.data(), STACK_BYTES);
}
void come_to(fiber *to)
{
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(to->frames, &bottom, &bytes);
    if (is_from_launcher) {
        launcher_bottom = bottom;
        launcher_bytes = bytes;
    }
}
#else
void (*jump)(jmp_buf, int) = _longjmp;
void leave(fiber *, fiber *)
{
}
void come_to(fiber *)
{
}
#endif

void change(fiber *from, fiber *to)
{
    if (_setjmp(from->resume) == 0) {
        leave(from, to);
        if (to->is_entered)
            jump(to->resume, 1);
        to->is_entered = true;
        setcontext(&to->context);
    }
    come_to(from);
}

/* Makes the lane whose turn it is the current one. Each turn begins at another lane, and lets every
 * lane that can run do so until it waits or ends. False: in a whole turn none could. */
bool choose()
{
    unsigned n = (unsigned)lanes.size();
    for (;;) {
        if (n_left == 0) {
            if (!any_ran)
                return false;
            any_ran = false;
            n_left = n;
            offset += 13;
            current = offset % n;
        } else if (++current == n) {
            current = 0;
        }
        n_left--;
        if (lanes[current].state == FRESH || lanes[current].state == RUNNING) {
            any_ran = true;
            threadIdx.x = current;
            return true;
        }
    }
}

void fiber_main()
{
    fiber *f = lanes[current].on;
    come_to(f);
    for (;;) {
        lanes[current].state = RUNNING;
        body(body_arg);
        lanes[current].state = ENDED;
        bool goes_on = choose();
        if (goes_on && lanes[current].state == FRESH) {
            lanes[current].on = f;
        } else {
            idle.push_back(f);
            change(f, goes_on ? lanes[current].on : &launcher);
        }
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

/* From a stack to the current lane's. */
void run_current(fiber *from)
{
    lane &l = lanes[current];
    if (l.state == FRESH)
        l.on = fiber_take();
    change(from, l.on);
}

void wait_here()
{
    lane &me = lanes[current];
    fiber *f = me.on;
    me.state = WAITING;
    if (choose())
        run_current(f);
    else
        change(f, &launcher);
}

void release(unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++)
        if (lanes[i].state == WAITING)
            lanes[i].state = RUNNING;
}

void run_block(unsigned block)
{
    lanes.assign(block, lane());
    warps.assign((block + 31) / 32, warp());
    for (unsigned w = 0; w < warps.size(); w++)
        warps[w].lanes = block - w * 32 < 32 ? block - w * 32 : 32;
    at_barrier = 0;
    n_left = 0;
    any_ran = true;
    launcher.is_entered = true;
    offset = blockIdx.x * 37u + block * 11u - 13u;
    if (choose())
        run_current(&launcher);
    for (current = 0; current < block; current++)
        if (lanes[current].state != ENDED)
            stop("waits for a lane that will never come");
}

} // namespace

void (*emulator_before_launch)();

void emulator_run(unsigned grid, unsigned block, void (*to_run)(void *), void *arg)
{
    if (grid == 0 || block == 0 || block > 1024)
        stop("no such launch");
    std::lock_guard<std::mutex> launch(one_launch);
    if (emulator_before_launch != nullptr)
        emulator_before_launch();
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
