// Runs the threads of a block in turns on one thread of the host, and judges each access they make.
//
// The kernel is compiled with -fsanitize=thread but is not linked with that library: the functions
// that the compiler calls before each load and store are defined here. Two accesses to a byte are
// a race if one of them writes, not both are atomic, they are of two threads, and nothing orders
// them: a barrier of the block, a __syncwarp of the warp, or, between blocks, a fence and an atomic
// of the one that the other's atomic has seen. Which order really ran does not matter.
#include <csetjmp>
#include <cstdarg>
#include <cstdlib>
#include <map>
#include <vector>
#include <link.h>
#include <sys/mman.h>
#include <ucontext.h>
#include "words.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

enum State { READY, AT_BARRIER, IN_WARP, DONE };
struct Copy { char* to; const char* from; size_t size; bool is_there; };
struct Fibre {
    ucontext_t start;
    std::vector<Copy> copies;  // that go on beside it
    jmp_buf at;
    bool started;
    State state;
    int line;
    char* stack;
    unsigned mask, present;  // of what it waits for in its warp, and who came
    const char* what;
    Brought value;
};
struct Access { uint32_t thread, epoch, warp_epoch, line; };  // thread counts from 1; 0 is none
struct Cell { Access writes[2], reads[2]; };  // of two at least one is another thread's
struct Range { char* low; size_t size; int read_only; Cell* cells; };
struct Known { uint32_t epoch, thread; };  // what of another block comes before: see `ordered`
constexpr size_t STACK = 64 << 10, GUARD = 4 << 10;
constexpr size_t MOST_THREADS = 1024;
constexpr size_t DYNAMIC = 227 << 10, PATIENCE = 100'000'000;
constexpr size_t MOST_CELLS = 1 << 14;  // of a range that stay for the next launch
constexpr uint32_t ATOMIC = 1u << 31, EPOCHS = 1u << 31;

static std::vector<Fibre> fibres;
static std::vector<Brought> brought;  // as it was when a warp met
static std::vector<uint32_t> warp_epochs;
static std::vector<Range> arrays;
static std::vector<char> alone;  // of an array, whether no earlier one overlaps: 1, or 2 if one does
static std::map<uint32_t, Known> known;  // by block, of the block that runs
static std::map<const void*, std::map<uint32_t, Known>> released;  // by the atomic that tells it
static std::vector<bool> fenced;
static Range fixed, own, dynamic, module;  // of `fixed`, the kernels' of all sources, its source's
static jmp_buf scheduler;
static std::vector<std::pair<Cell*, size_t>> stores;  // of cells, which later launches take again
static char *message, *host_stack;
static size_t slice, spent;
static uint32_t epoch, launch_epoch, first_epoch, block_number;
static int current = -1, threads, exited, votes, barrier_votes, races, early_exit;
static bool failed, in_turns, watched;
static void **arguments, (*kernel)(void**);
static uint64_t seed;
alignas(128) static thread_local unsigned char dynamic_memory[DYNAMIC];

static uint32_t draw()
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed >> 32;
}
static void leave()  // to the scheduler, and later back
{
    if (!_setjmp(fibres[current].at)) _longjmp(scheduler, 1);
}
extern "C" void on_cpu_fail(const char* format, ...)  // a launch ends with its first error
{
    va_list values;
    va_start(values, format);
    int n = vsnprintf(message, 900, format, values);
    va_end(values);
    failed = true;
    if (current < 0) return;
    sprintf(message + n, " [block (%u,%u,%u) thread (%u,%u,%u)]", blockIdx.x, blockIdx.y,
            blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    _longjmp(scheduler, 1);
}
extern "C" int on_cpu_lane() { return current % 32; }
extern "C" void* on_cpu_dynamic() { return dynamic_memory; }
extern "C" int on_cpu_is_shared(const void* p)
{
    return (const char*)p >= fixed.low && (const char*)p < fixed.low + fixed.size;
}
extern "C" void on_cpu_fence() { fenced[current] = true; }
extern "C" unsigned on_cpu_active()
{
    unsigned mask = 0;
    for (int i = 0, w = current / 32 * 32; i < 32 && w + i < threads; i++)
        if (fibres[w + i].state != DONE) mask |= 1u << i;
    return mask;
}
extern "C" int on_cpu_barrier(int line, int holds)
{
    Fibre& f = fibres[current];
    f.state = AT_BARRIER, f.line = line, votes += holds;
    leave();
    return barrier_votes;
}
extern "C" const Brought* on_cpu_meet(unsigned mask, const char* what, int line, const void* value,
                                      size_t n, unsigned* present)
{
    if (!(mask >> on_cpu_lane() & 1))
        on_cpu_fail("%s at line %d: its mask %08x lacks the lane %d that calls", what, line, mask,
                    on_cpu_lane());
    Fibre& f = fibres[current];
    f.state = IN_WARP, f.mask = mask, f.what = what, f.line = line;
    memcpy(f.value.bytes, value, n);
    leave();
    *present = f.present;
    return &brought[current / 32 * 32];
}

static float element(const Brought& from, int in_register, int upper, int is_bf16)
{
    uint16_t bits;
    memcpy(&bits, from.bytes + in_register * 4 + upper * 2, 2);
    return is_bf16 ? on_cpu_from_bf16(bits) : on_cpu_from_half(bits);
}
extern "C" void on_cpu_add_product(float (&d)[4], const Brought* brought, int is_bf16)
{
    for (int i = 0; i < 4; i++) {
        const int row = on_cpu_lane() / 4 + i / 2 * 8, column = on_cpu_lane() % 4 * 2 + i % 2;
        double sum = d[i];  // a GPU adds up in float, in an order of its own
        for (int k = 0; k < 16; k++) {
            const Brought& left = brought[row % 8 * 4 + k % 8 / 2];
            const Brought& right = brought[column * 4 + k % 8 / 2];
            sum += (double)element(left, row / 8 + k / 8 * 2, k % 2, is_bf16) *
                   element(right, 4 + k / 8, k % 2, is_bf16);
        }
        d[i] = (float)sum;
    }
}
extern "C" void on_cpu_add_tf32(float (&d)[4], const Brought* brought)
{
    auto number = [&](int lane, int in_register) {  // without the bits that TF32 has not
        uint32_t bits;
        memcpy(&bits, brought[lane].bytes + in_register * 4, 4);
        return (double)on_cpu_bits<float>(bits & 0xffffe000u);
    };
    for (int i = 0; i < 4; i++) {
        const int row = on_cpu_lane() / 4 + i / 2 * 8, column = on_cpu_lane() % 4 * 2 + i % 2;
        double sum = d[i];
        for (int k = 0; k < 8; k++)
            sum += number(row % 8 * 4 + k % 4, row / 8 + k / 4 * 2) *
                   number(column * 4 + k % 4, 4 + k / 4);
        d[i] = (float)sum;
    }
}

// Judging -------------------------------------------------------------------------------------------

static bool ordered(const Access& a, uint32_t me)  // does it come before, whatever the schedule?
{
    if (a.epoch < launch_epoch || a.thread == me) return true;
    uint32_t block = (a.thread - 1) / threads;
    if (block != block_number) {
        auto found = known.find(block);
        if (found == known.end()) return false;
        const Known& k = found->second;
        return a.epoch < k.epoch || (a.epoch == k.epoch && a.thread == k.thread);
    }
    bool same_warp = int((a.thread - 1) % threads) / 32 == current / 32;
    return a.epoch != epoch || (same_warp && a.warp_epoch < warp_epochs[current / 32]);
}
static const char* word(int how) { return how == READS ? "read" : how == WRITES ? "write" : "atomic"; }

static const char* place_of(const Range& r)  // in words
{
    static char text[32];
    if (&r == &dynamic) return "dynamic shared memory";
    if (&r == &fixed) return "shared memory";
    snprintf(text, sizeof text, "array %zu", size_t(&r - arrays.data()));
    return text;
}
static void race(const Access& a, int how, const char* earlier, const Range& r, size_t offset,
                 uint32_t line)
{
    on_cpu_fail("race in %s at byte %zu: %s @%x, and %s of thread %u of block %u @%x, with no "
                "barrier between", place_of(r), offset, word(how), line, earlier,
                (a.thread - 1) % threads, (a.thread - 1) / threads, a.line & ~ATOMIC);
}
static Cell* cells_of(const Range& r)  // what an earlier launch has left in them is of no account
{
    size_t k = &r == &fixed ? 0 : &r == &dynamic ? 1 : 2 + (&r - arrays.data());
    if (stores.size() <= k) stores.resize(k + 1);
    auto& [cells, count] = stores[k];
    if (count < r.size + 1) {
        free(cells);
        cells = (Cell*)calloc(count = r.size + 1, sizeof(Cell));
    }
    return cells;
}
static bool is_old(const Cell& c)
{
    return c.writes[0].epoch < launch_epoch && c.writes[1].epoch < launch_epoch &&
           c.reads[0].epoch < launch_epoch && c.reads[1].epoch < launch_epoch;
}
static void note(Range& range, const char* p, size_t n, int how, uint32_t line, bool shared)
{
    if (!range.cells) range.cells = cells_of(range);
    size_t offset = p - range.low;
    Cell *c = range.cells + offset, before;
    uint32_t me = block_number * threads + current + 1;
    Access now{me, epoch, warp_epochs[current / 32], how == UPDATES ? line | ATOMIC : line};
    for (size_t i = 0; i < n; i++, c++) {
        if (is_old(*c)) *c = Cell{};
        if (i && !memcmp(c, &before, sizeof before)) {  // most bytes are as the one before them
            *c = c[-1];
            continue;
        }
        before = *c;
        if (shared && c->writes[0].epoch < first_epoch) {  // of an earlier block, or never
            *c = Cell{};
            if (how != WRITES)
                on_cpu_fail("%s of %s at byte %zu that no thread of the block has written yet (not "
                            "set, or no barrier) @%x", word(how), place_of(range), offset + i, line);
        }
        if (races > !shared) {
            for (auto& w : c->writes)
                if (!ordered(w, me) && !(how == UPDATES && w.line & ATOMIC))
                    race(w, how, w.line & ATOMIC ? "atomic" : "write", range, offset + i, line);
            if (how != READS)
                for (auto& r : c->reads)
                    if (!ordered(r, me)) race(r, how, "read", range, offset + i, line);
        }
        Access* kept = how == READS ? c->reads : c->writes;
        kept[!ordered(kept[0], me)] = now;
    }
}
static void tell_others(const void* p)  // an atomic: who has seen it comes after what we fenced
{
    auto& told = released[p];
    known.insert(told.begin(), told.end());
    for (auto& [block, k] : told)
        if (k.epoch >= known[block].epoch) known[block] = k;
    if (!fenced[current]) return;
    for (auto& [block, k] : known) told[block] = k;
    told[block_number] = Known{epoch, block_number * threads + current + 1};
}
static bool inside(const Range& r, const char* a, size_t n)
{
    return a >= r.low && a + n <= r.low + r.size;
}
static Range* array_of(const char* a, size_t n)  // the first that has these bytes
{
    static size_t last[2];  // found and the one before it, if no earlier array has bytes of theirs
    for (size_t k : last)
        if (k < arrays.size() && alone[k] == 1 && inside(arrays[k], a, n)) return &arrays[k];
    for (size_t k = 0; k < arrays.size(); k++) {
        Range& r = arrays[k];
        if (!inside(r, a, n)) continue;
        if (!alone[k]) {
            alone[k] = 1;
            for (size_t j = 0; j < k; j++)
                if (arrays[j].low < r.low + r.size && r.low < arrays[j].low + arrays[j].size)
                    alone[k] = 2;
        }
        last[1] = last[0], last[0] = k;
        return &r;
    }
    return nullptr;
}
static void outside(const char* a, size_t n, int how, uint32_t line)
{
    if (arrays.empty()) on_cpu_fail("%s of %zu bytes outside of every array @%x", word(how), n, line);
    size_t nearest = 0, least = SIZE_MAX;
    for (size_t i = 0; i < arrays.size(); i++) {
        const Range& r = arrays[i];
        size_t distance = a < r.low ? r.low - a : a + n - (r.low + r.size);
        if (distance < least) nearest = i, least = distance;
    }
    on_cpu_fail("%s of %zu bytes out of bounds: at byte %td of array %zu, which has %zu @%x",
                word(how), n, a - arrays[nearest].low, nearest, arrays[nearest].size, line);
}
extern "C" void on_cpu_access(const void* p, size_t n, int how, void* pc)
{
    if (current < 0) return;
    const char* a = (const char*)p;
    uint32_t line = (char*)pc - module.low;  // a place in the code; the reader of it finds the line
    if (++spent > PATIENCE)
        on_cpu_fail("the block made 1e8 accesses without a barrier: does it wait for another? @%x",
                    line);
    if (in_turns && !--slice) slice = 4096, leave();  // another may hold a lock that this one awaits
    if (!watched) return;
    if (in_turns ? a >= fibres[current].stack && a < fibres[current].stack + STACK
                 : a >= (char*)__builtin_frame_address(0) && a < host_stack)
        return;  // its own local variables
    if (n <= 16 && (uintptr_t)a % n)
        on_cpu_fail("misaligned %s of %zu bytes @%x", word(how), n, line);
    if (inside(dynamic, a, n)) return note(dynamic, a, n, how, line, true);
    if (a >= dynamic.low && a < dynamic.low + DYNAMIC)
        on_cpu_fail("%s of %zu bytes at byte %zu of dynamic shared memory, which has %zu @%x",
                    word(how), n, a - dynamic.low, dynamic.size, line);
    if (inside(fixed, a, n)) return note(fixed, a, n, how, line, true);
    if (Range* r = array_of(a, n)) {
        if (r->read_only && how != READS)
            on_cpu_fail("%s to %s, which is read-only @%x", word(how), place_of(*r), line);
        if (how == UPDATES) tell_others(p);
        if (races > 1) note(*r, a, n, how, line, false);
        return;
    }
    if (!inside(module, a, n)) outside(a, n, how, line);  // the module's: __constant__, threadIdx
}
extern "C" void on_cpu_copy(void* to, const void* from, size_t n, int is_there, void* pc)
{
    on_cpu_access(to, n, WRITES, pc);
    if (is_there) on_cpu_access(from, n, READS, pc);
    fibres[current].copies.push_back({(char*)to, (const char*)from, n, is_there != 0});
}
extern "C" void on_cpu_await_copies(void* pc)
{
    auto copies = std::move(fibres[current].copies);
    fibres[current].copies.clear();
    for (const Copy& c : copies) {
        on_cpu_access(c.to, c.size, WRITES, pc);
        if (c.is_there) memcpy(c.to, c.from, c.size);
        else memset(c.to, 0, c.size);
    }
}

// What the compiler calls under -fsanitize=thread, and under -fsanitize=undefined
extern "C" {
#define PC __builtin_return_address(0)
#define HOOK(n)                                                                           \
    void __tsan_read##n(void* p) { on_cpu_access(p, n, READS, PC); }                      \
    void __tsan_write##n(void* p) { on_cpu_access(p, n, WRITES, PC); }                    \
    void __tsan_unaligned_read##n(void* p) { on_cpu_access(p, n, READS, PC); }            \
    void __tsan_unaligned_write##n(void* p) { on_cpu_access(p, n, WRITES, PC); }
HOOK(1) HOOK(2) HOOK(4) HOOK(8) HOOK(16)
void __tsan_read_range(void* p, size_t n) { on_cpu_access(p, n, READS, PC); }
void __tsan_write_range(void* p, size_t n) { on_cpu_access(p, n, WRITES, PC); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
struct Place { const char* file; uint32_t line, column; };
#define FAULT(name)                                                                       \
    void __ubsan_handle_##name(Place* at)                                                 \
    {                                                                                     \
        on_cpu_fail("undefined behaviour, " #name ", at line %u", at->line);              \
    }
FAULT(out_of_bounds) FAULT(shift_out_of_bounds) FAULT(divrem_overflow) FAULT(add_overflow)
FAULT(sub_overflow) FAULT(mul_overflow) FAULT(negate_overflow) FAULT(builtin_unreachable)
FAULT(missing_return) FAULT(type_mismatch_v1)
}

// Taking turns --------------------------------------------------------------------------------------

static void fibre_main()
{
    for (;;) {
        kernel(arguments);
        fibres[current].state = DONE, exited++;
        leave();
    }
}
static void place(int thread)
{
    unsigned t = current = thread;
    threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
}
static unsigned came(int warp, const Fibre& f)  // who of its mask has come; 0 while one is missing
{
    unsigned present = 0;
    for (int i = 0; i < 32 && warp + i < threads; i++) {
        const Fibre& g = fibres[warp + i];
        if (!(f.mask >> i & 1) || g.state == DONE) continue;  // who has returned is not awaited
        if (g.state != IN_WARP || g.mask != f.mask || g.line != f.line) return 0;
        if (g.what != f.what && strcmp(g.what, f.what)) return 0;
        present |= 1u << i;
    }
    return present;
}
static bool release_warps()
{
    bool any = false;
    const Fibre* in_vain = nullptr;  // who waits for others still
    for (int i = 0; i < threads; i++) {
        const Fibre& f = fibres[i];
        int warp = i / 32 * 32;
        if (i == warp) in_vain = nullptr;
        if (f.state != IN_WARP) continue;
        if (in_vain && in_vain->mask == f.mask && in_vain->line == f.line) continue;
        unsigned present = came(warp, f);
        if (!present) {
            in_vain = &f;
            continue;
        }
        if (!strcmp(fibres[i].what, "__syncwarp")) warp_epochs[warp / 32]++;  // shuffles order nothing
        for (int j = 0; j < 32; j++)
            if (present >> j & 1) {
                Fibre& g = fibres[warp + j];
                brought[warp + j] = g.value, g.present = present, g.state = READY;
            }
        any = true;
    }
    return any;
}
static void stuck()
{
    static const char* const where[] = {"runs", "waits at __syncthreads", "waits at ", "returned"};
    char text[700];
    int n = 0, shown = 0;
    for (int i = 0; i < threads && shown < 4; i++) {
        Fibre &f = fibres[i], &before = fibres[i ? i - 1 : 0];
        if (i && f.state == before.state && (f.state == DONE || f.line == before.line)) continue;
        const char* what = f.state == IN_WARP ? f.what : "";
        n += snprintf(text + n, sizeof text - n, "; thread %d %s%s", i, where[f.state], what);
        if (f.state != DONE) n += snprintf(text + n, sizeof text - n, " line %d", f.line);
        shown++;
    }
    on_cpu_fail("threads of block (%u,%u,%u) do not meet%s", blockIdx.x, blockIdx.y, blockIdx.z,
                text);
}
static bool release_barrier()
{
    int line = -1;
    for (Fibre& f : fibres) {
        if (f.state == DONE) continue;
        if (f.state != AT_BARRIER || (line >= 0 && f.line != line)) return false;
        line = f.line;
    }
    if (exited && !early_exit) return false;
    epoch++, barrier_votes = votes, votes = 0, spent = 0;
    for (Fibre& f : fibres)
        if (f.state == AT_BARRIER) f.state = READY;
    return true;
}
static void run_in_turns()
{
    std::vector<int> order(threads);
    for (int i = 0; i < threads; i++) order[i] = i, fibres[i].state = READY;
    while (exited < threads) {
        for (int i = threads - 1; i > 0; i--) std::swap(order[i], order[draw() % (i + 1)]);
        for (volatile int i = 0; i < threads; i = i + 1) {  // volatile: setjmp comes back to it
            Fibre& f = fibres[order[i]];
            if (f.state != READY) continue;
            place(order[i]);
            slice = 4096;
            if (!_setjmp(scheduler)) {
                if (f.started) _longjmp(f.at, 1);
                f.started = true;
                setcontext(&f.start);
            }
            if (failed) return;
        }
        current = -1;
        bool ready = release_warps();
        for (Fibre& f : fibres) ready |= f.state == READY;
        if (!ready && exited < threads && !release_barrier()) return stuck();
    }
}
static void run_one_by_one()  // threads that never meet
{
    for (volatile int i = 0; i < threads; i = i + 1) {
        place(i);
        if (!_setjmp(scheduler)) kernel(arguments);
        if (failed) return;
    }
}
static void run_block()
{
    memset(own.low, 0xFF, own.size);  // shared memory begins as nan
    memset(dynamic.low, 0xFF, dynamic.size);
    first_epoch = ++epoch, exited = votes = 0, spent = 0;
    for (Fibre& f : fibres) f.copies.clear();
    known.clear();
    fenced.assign(threads, false);
    in_turns ? run_in_turns() : run_one_by_one();
    current = -1;
}

// Launching -----------------------------------------------------------------------------------------

static int find_module(dl_phdr_info* info, size_t, void*)  // this library, and its shared memory
{
    char *base = (char*)info->dlpi_addr, *here = (char*)&fibres;
    size_t end = 0, size = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        auto& part = info->dlpi_phdr[i];
        if (part.p_type == PT_LOAD) end = part.p_vaddr + part.p_memsz;
        if (part.p_type == PT_TLS) size = part.p_memsz;
    }
    if (here < base || here >= base + end) return 0;
    module = {base, end, 0, nullptr};
    fixed = {(char*)info->dlpi_tls_data, size, 0, nullptr};
    return 1;
}
static char* make_stacks()  // each ends at a page that nobody may touch
{
    char* stacks = (char*)mmap(nullptr, MOST_THREADS * (STACK + GUARD), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t i = 0; i < MOST_THREADS; i++) mprotect(stacks + i * (STACK + GUARD), GUARD, PROT_NONE);
    return stacks;
}
static void make_fibres(char* stacks)
{
    static ucontext_t start;
    static const int is_set = getcontext(&start);  // a call of the system, which each would cost
    (void)is_set;
    for (int i = 0; i < threads; i++) {
        Fibre& f = fibres[i];
        f.stack = stacks + i * (STACK + GUARD) + GUARD;
        f.start = start;
        f.start.uc_stack.ss_sp = f.stack, f.start.uc_stack.ss_size = STACK;
        makecontext(&f.start, fibre_main, 0);
    }
}
struct Launch {
    char* stacks;  // a process has one set, whichever library runs
    unsigned grid[3], block[3], shared, races, early_exit, in_turns, watched, low, high;
    uint64_t seed, first, blocks;  // `blocks` of them from `first` on; 0 are all, in a drawn order
};

ON_CPU_VISIBLE int on_cpu_launch(void (*entry)(void**), void** args, const Range* ranges, int count,
                                 Launch* how, char* error)
{
    kernel = entry, arguments = args, message = error, failed = false;
    launch_epoch = epoch + 1;
    gridDim = {how->grid[0], how->grid[1], how->grid[2]};
    blockDim = {how->block[0], how->block[1], how->block[2]};
    threads = blockDim.x * blockDim.y * blockDim.z;
    races = how->races, early_exit = how->early_exit, in_turns = how->in_turns;
    watched = how->watched;
    seed = how->seed * 0x9E3779B97F4A7C15u + 1;
    for (int i = 0; i < 20; i++) draw();  // a small seed is mixed only after a while
    host_stack = (char*)__builtin_frame_address(0);
    ((volatile unsigned char*)dynamic_memory)[0] = 0;  // the thread's copy exists from here on
    dl_iterate_phdr(find_module, nullptr);
    dynamic = {(char*)dynamic_memory, how->shared, 0, nullptr};
    own = {fixed.low + how->low, how->high - how->low, 0, nullptr};
    arrays.assign(ranges, ranges + count);
    alone.assign(count, 0);
    fibres.resize(threads);
    for (Fibre& f : fibres) f.started = false, f.copies.clear();
    brought.assign((threads + 31) / 32 * 32, Brought{});
    warp_epochs.assign((threads + 31) / 32, 0);
    released.clear();
    if (in_turns) {
        if (!how->stacks) how->stacks = make_stacks();
        make_fibres(how->stacks);
    }
    size_t blocks = (size_t)gridDim.x * gridDim.y * gridDim.z, first = blocks ? draw() % blocks : 0;
    if (how->blocks) first = how->first;
    for (size_t k = 0; k < (how->blocks ? how->blocks : blocks) && !failed; k++) {
        unsigned b = block_number = (first + k) % blocks;
        blockIdx = {b % gridDim.x, b / gridDim.x % gridDim.y, b / gridDim.x / gridDim.y};
        run_block();
    }
    for (auto& [cells, count] : stores)
        if (count > MOST_CELLS || epoch > EPOCHS) free(cells), cells = nullptr, count = 0;
    if (epoch > EPOCHS) epoch = 0;
    return failed;
}
