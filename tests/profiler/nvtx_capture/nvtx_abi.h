/* The part of NVTX 3's injection interface that nvtx_capture.c needs: names, numbers, layouts.
 *
 * At its first NVTX call an application loads the library that NVTX_INJECTION64_PATH names and
 * calls its InitializeInjectionNvtx2(get_export_table); the library then writes its own functions
 * into the callback tables. Numbers and layouts are those of nvtxDetail/nvtxTypes.h and
 * nvToolsExt.h of NVTX 3, a stable binary interface: no NVIDIA header is needed to build the tests.
 */
#ifndef NVTX_ABI_H
#define NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { EXPORT_TABLE_CALLBACKS = 1 };        /* argument of get_export_table */
enum { MODULE_CORE = 1, MODULE_CORE2 = 5 }; /* callback tables */

enum { /* indices into the table of MODULE_CORE: the default domain */
    CORE_MarkEx = 1,
    CORE_MarkA = 2,
    CORE_RangeStartEx = 4,
    CORE_RangeStartA = 5,
    CORE_RangeEnd = 7,
    CORE_RangePushEx = 8,
    CORE_RangePushA = 9,
    CORE_RangePop = 11
};

enum { /* indices into the table of MODULE_CORE2: named domains, and the default one as NULL */
    CORE2_DomainMarkEx = 1,
    CORE2_DomainRangeStartEx = 2,
    CORE2_DomainRangeEnd = 3,
    CORE2_DomainRangePushEx = 4,
    CORE2_DomainRangePop = 5,
    CORE2_DomainRegisterStringA = 10,
    CORE2_DomainCreateA = 12,
    CORE2_DomainDestroy = 14
};

enum { MESSAGE_ASCII = 1, MESSAGE_WIDE = 2, MESSAGE_REGISTERED = 3 };
enum { PAYLOAD_NONE = 0, PAYLOAD_UINT64 = 1, PAYLOAD_INT64 = 2, PAYLOAD_DOUBLE = 3 };

typedef struct {
    uint16_t version;
    uint16_t size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type;
    int32_t reserved;
    union {
        uint64_t u64;
        int64_t i64;
        double f64;
    } payload;
    int32_t message_type;
    const void *message; /* const char *, const wchar_t * or the handle of a registered string */
} EventAttributes;

typedef void (*AnyFunction)(void);
typedef AnyFunction **FunctionTable; /* an array of pointers to function pointers */

typedef struct {
    size_t struct_size;
    int (*get_module_function_table)(int module, FunctionTable *table, unsigned int *size);
} ExportTableCallbacks;

typedef const void *(*GetExportTable)(uint32_t export_table_id);

#endif
