/* An NVTX tool that writes one line per event to the file that NVTX_CAPTURE_FILE names.
 *
 * Build: cc -O1 -shared -fPIC -o libnvtx_capture.so nvtx_capture.c
 * Use:   NVTX_INJECTION64_PATH=/.../libnvtx_capture.so NVTX_CAPTURE_FILE=events.tsv program
 *
 * Columns, separated by tabs: nanoseconds, thread, event (push, pop, mark, start, end), domain
 * ("default" for the unnamed one), message (tabs, newlines and backslashes escaped), payload or
 * nothing. A pop carries no message. CuPy, the nvtx package and others each hold their own instance
 * of NVTX, so the tool is initialised once per instance; all write to the same file. */
#define _GNU_SOURCE
#include "nvtx_abi.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 8192 };

static int output = -1;
static uint64_t next_range = 1;

static void escape(char *to, size_t size, const char *from) {
    size_t used = 0;
    for (; from != NULL && *from != '\0' && used + 3 < size; ++from) {
        const char code = *from == '\t' ? 't' : *from == '\n' ? 'n' : *from == '\\' ? '\\' : '\0';
        if (code != '\0') {
            to[used++] = '\\';
            to[used++] = code;
        } else {
            to[used++] = *from;
        }
    }
    to[used] = '\0';
}

static void write_event(const char *event, const char *domain, const char *message,
                        const char *payload) {
    char text[LINE / 2], line[LINE];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    escape(text, sizeof text, message);
    const int length = snprintf(line, sizeof line, "%lld\t%ld\t%s\t%s\t%s\t%s\n",
                                (long long)now.tv_sec * 1000000000LL + now.tv_nsec,
                                (long)syscall(SYS_gettid), event, domain ? domain : "default",
                                text, payload);
    /* One write per line to a file opened with O_APPEND: lines of several threads do not mix. */
    if (length >= LINE || write(output, line, (size_t)length) != length) {
        fprintf(stderr, "nvtx_capture: could not write an event\n");
        abort();
    }
}

static void write_attributes(const char *event, const char *domain, const EventAttributes *from) {
    char payload[64] = "";
    const char *message = "";
    if (from->message_type == MESSAGE_ASCII || from->message_type == MESSAGE_REGISTERED) {
        message = from->message; /* a registered string is its own handle: domain_register */
    } else if (from->message_type == MESSAGE_WIDE) {
        message = "<wide string>";
    }
    if (from->payload_type == PAYLOAD_UINT64) {
        snprintf(payload, sizeof payload, "%" PRIu64, from->payload.u64);
    } else if (from->payload_type == PAYLOAD_INT64) {
        snprintf(payload, sizeof payload, "%" PRId64, from->payload.i64);
    } else if (from->payload_type == PAYLOAD_DOUBLE) {
        snprintf(payload, sizeof payload, "%.17g", from->payload.f64);
    } else if (from->payload_type != PAYLOAD_NONE) {
        snprintf(payload, sizeof payload, "<type %" PRId32 ">", from->payload_type);
    }
    write_event(event, domain, message, payload);
}

/* Domains, as the nvtx package uses them: a handle is a copy of the name, NULL the default. Copies
 * are kept to the end, because later events may still name them. */

static char *domain_create(const char *name) { return strdup(name); }
static void domain_destroy(char *domain) { (void)domain; }
static char *domain_register(char *domain, const char *text) { return (void)domain, strdup(text); }

static void domain_mark(const char *domain, const EventAttributes *from) {
    write_attributes("mark", domain, from);
}
static int domain_push(const char *domain, const EventAttributes *from) {
    return write_attributes("push", domain, from), 0;
}
static int domain_pop(const char *domain) { return write_event("pop", domain, "", ""), 0; }
static uint64_t domain_start(const char *domain, const EventAttributes *from) {
    write_attributes("start", domain, from);
    return __sync_fetch_and_add(&next_range, 1);
}
static void domain_end(const char *domain, uint64_t range) {
    (void)range;
    write_event("end", domain, "", "");
}

/* The default domain, as CuPy, PyTorch and C programs use it. */

static void mark_ex(const EventAttributes *from) { domain_mark(NULL, from); }
static void mark(const char *message) { write_event("mark", NULL, message, ""); }
static int push_ex(const EventAttributes *from) { return domain_push(NULL, from); }
static int push(const char *message) { return write_event("push", NULL, message, ""), 0; }
static int pop(void) { return domain_pop(NULL); }
static uint64_t start_ex(const EventAttributes *from) { return domain_start(NULL, from); }
static void end(uint64_t range) { domain_end(NULL, range); }
static uint64_t start(const char *message) {
    write_event("start", NULL, message, "");
    return __sync_fetch_and_add(&next_range, 1);
}

/* Attaching. */

typedef struct {
    unsigned int index;
    AnyFunction function;
} Callback;

static int install(const ExportTableCallbacks *exports, int module, const Callback *callbacks) {
    FunctionTable table = NULL;
    unsigned int size = 0;
    if (!exports->get_module_function_table(module, &table, &size)) {
        return 0;
    }
    for (; callbacks->function != NULL; ++callbacks) {
        if (callbacks->index <= size) { /* an older NVTX has a shorter table */
            *table[callbacks->index] = callbacks->function;
        }
    }
    return 1;
}

static void open_output(void) {
    const char *path = getenv("NVTX_CAPTURE_FILE");
    output = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
}

int InitializeInjectionNvtx2(GetExportTable get_export_table) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static const Callback core[] = {
        {CORE_MarkEx, (AnyFunction)mark_ex},
        {CORE_MarkA, (AnyFunction)mark},
        {CORE_RangeStartEx, (AnyFunction)start_ex},
        {CORE_RangeStartA, (AnyFunction)start},
        {CORE_RangeEnd, (AnyFunction)end},
        {CORE_RangePushEx, (AnyFunction)push_ex},
        {CORE_RangePushA, (AnyFunction)push},
        {CORE_RangePop, (AnyFunction)pop},
        {0, NULL},
    };
    static const Callback core2[] = {
        {CORE2_DomainMarkEx, (AnyFunction)domain_mark},
        {CORE2_DomainRangeStartEx, (AnyFunction)domain_start},
        {CORE2_DomainRangeEnd, (AnyFunction)domain_end},
        {CORE2_DomainRangePushEx, (AnyFunction)domain_push},
        {CORE2_DomainRangePop, (AnyFunction)domain_pop},
        {CORE2_DomainRegisterStringA, (AnyFunction)domain_register},
        {CORE2_DomainCreateA, (AnyFunction)domain_create},
        {CORE2_DomainDestroy, (AnyFunction)domain_destroy},
        {0, NULL},
    };
    pthread_once(&once, open_output);
    const ExportTableCallbacks *exports = get_export_table(EXPORT_TABLE_CALLBACKS);
    if (output < 0 || exports == NULL) {
        return 0; /* NVTX then drops the tool */
    }
    return install(exports, MODULE_CORE, core) && install(exports, MODULE_CORE2, core2);
}
