/* Stands in for NVIDIA's libnvidia-ml.so.1 in tests/detectors/test_nvml*.py, because no GPU is there.
 *
 * It answers from the text file that NVML_STAND_IN names, read anew at each call. Lines are "key value":
 *   order 0 2            which devices are listed, in the order of their index
 *   gpu0.uncorrected 5   a value; a key that is not there is a query that the device does not support
 *   gpu0.uncorrected !15 an error in its place
 *   gpu0.xids 31 79      all Xids so far; an event set delivers those that come after it was made
 *   gpu0.boot 1          how often the device has come back: handles and event sets from before do not hold any more
 *   init !9, count !1    an error of the library itself
 * An event set that gave an error gives errors from then on, and there are SETS of them at most.
 * Signatures and layouts are those of nvml.h, as far as the detector needs them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, TIMEOUT = 10, LOST = 15, MEMORY = 20, UNKNOWN = 999 };
enum { DEVICES = 8, BOOTS = 2, SETS = 8, EVENT_XID = 8 };

typedef struct { int number, boot; } device_t;
typedef struct { device_t *device; int delivered, broken; } event_set_t;
typedef struct { device_t *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event_t;
typedef struct { unsigned id, scope; long long timestamp, latency; unsigned type, result; unsigned long long value; } field_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, ids, subsystem; char address[32]; } pci_t;

static device_t devices[BOOTS][DEVICES];
static int sets;

static int text(const char *key, char *found, size_t size)
{
    char line[1024];
    size_t length = strlen(key);
    FILE *file = fopen(getenv("NVML_STAND_IN"), "r");
    int result = NOT_SUPPORTED;
    while (file && result == NOT_SUPPORTED && fgets(line, sizeof line, file))
        if (!strncmp(line, key, length) && line[length] == ' ') {
            line[strcspn(line, "\n")] = 0;
            snprintf(found, size, "%s", line + length + 1);
            result = found[0] == '!' ? atoi(found + 1) : SUCCESS;
        }
    if (file)
        fclose(file);
    return result;
}

static int boot(int number)
{
    char key[128], found[64];
    snprintf(key, sizeof key, "gpu%d.boot", number);
    return text(key, found, sizeof found) == SUCCESS ? atoi(found) : 0;
}

static int of_device(device_t *device, const char *name, char *found, size_t size)
{
    char key[128];
    if (device->boot != boot(device->number))
        return LOST;
    snprintf(key, sizeof key, "gpu%d.%s", device->number, name);
    return text(key, found, size);
}

static int number(device_t *device, const char *name, unsigned long long *value)
{
    char found[1024];
    int result = of_device(device, name, found, sizeof found);
    if (result == SUCCESS)
        *value = strtoull(found, NULL, 0);
    return result;
}

static int small(device_t *device, const char *name, unsigned *value)
{
    unsigned long long found;
    int result = number(device, name, &found);
    if (result == SUCCESS)
        *value = (unsigned)found;
    return result;
}

/* The number at a place of a list, -1 if it is shorter. */
static int nth(char *list, int place)
{
    char *next = NULL, *item = strtok_r(list, " ", &next);
    while (item && place--)
        item = strtok_r(NULL, " ", &next);
    return item ? atoi(item) : -1;
}

int nvmlInitWithFlags(unsigned flags)
{
    char found[64];
    int result = text("init", found, sizeof found);
    sets = 0;
    (void)flags;
    return result == NOT_SUPPORTED ? SUCCESS : result;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int result) { (void)result; return "an error of the stand-in"; }

int nvmlDeviceGetCount_v2(unsigned *count)
{
    char list[1024] = "";
    int result = text("count", list, sizeof list);
    if (result != SUCCESS && result != NOT_SUPPORTED)
        return result;
    for (*count = 0; *count < DEVICES; ++*count) {
        text("order", list, sizeof list);
        if (nth(list, (int)*count) < 0)
            break;
    }
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device)
{
    char list[1024] = "";
    int found, result;
    text("order", list, sizeof list);
    found = nth(list, (int)index);
    if (found < 0)
        return INVALID_ARGUMENT;
    *device = &devices[boot(found)][found];
    **device = (device_t){found, boot(found)};
    result = of_device(*device, "handle", list, sizeof list);
    return result == NOT_SUPPORTED ? SUCCESS : result;
}

int nvmlDeviceGetUUID(device_t *device, char *uuid, unsigned size) { return of_device(device, "uuid", uuid, size); }

int nvmlDeviceGetPciInfo_v3(device_t *device, pci_t *pci)
{
    memset(pci, 0, sizeof *pci);
    return of_device(device, "address", pci->address, sizeof pci->address);
}

int nvmlDeviceGetTotalEccErrors(device_t *device, int type, int counter, unsigned long long *count)
{
    return counter ? INVALID_ARGUMENT : number(device, type ? "uncorrected" : "corrected", count); /* volatile counters only */
}

int nvmlDeviceGetRemappedRows(device_t *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    char found[64];
    int result = of_device(device, "rows", found, sizeof found);
    if (result == SUCCESS)
        sscanf(found, "%u %u %u %u", corrected, uncorrected, pending, failed);
    return result;
}

int nvmlDeviceGetRetiredPagesPendingStatus(device_t *device, unsigned *pending) { return small(device, "pages", pending); }

int nvmlDeviceGetCurrentClocksEventReasons(device_t *device, unsigned long long *reasons) { return number(device, "clocks", reasons); }

int nvmlDeviceGetPcieReplayCounter(device_t *device, unsigned *count) { return small(device, "replays", count); }

int nvmlDeviceGetFieldValues(device_t *device, int count, field_t *fields)
{
    char name[64];
    int place, result = of_device(device, "fields", name, sizeof name);
    if (!count)
        return UNKNOWN; /* nobody asks for nothing */
    if (result != SUCCESS && result != NOT_SUPPORTED)
        return result;
    for (place = 0; place < count; ++place) {
        snprintf(name, sizeof name, "field.%u.%u", fields[place].id, fields[place].scope);
        fields[place].value = 0;
        fields[place].type = 3; /* unsigned long long */
        fields[place].result = (unsigned)number(device, name, &fields[place].value);
    }
    return SUCCESS;
}

int nvmlEventSetCreate(event_set_t **set)
{
    if (sets == SETS)
        return MEMORY;
    ++sets;
    *set = calloc(1, sizeof **set);
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(device_t *device, unsigned long long types, event_set_t *set)
{
    char list[1024];
    int result = of_device(device, "xids", list, sizeof list);
    if (result != SUCCESS || types != EVENT_XID)
        return result == SUCCESS ? INVALID_ARGUMENT : result;
    set->device = device;
    for (set->delivered = 0; of_device(device, "xids", list, sizeof list) == SUCCESS && nth(list, set->delivered) >= 0;)
        ++set->delivered;
    return SUCCESS;
}

int nvmlEventSetWait_v2(event_set_t *set, event_t *event, unsigned milliseconds)
{
    char list[1024] = "";
    int result = set->broken ? UNKNOWN : of_device(set->device, "xids", list, sizeof list);
    int xid = result == SUCCESS ? nth(list, set->delivered) : -1;
    set->broken = result != SUCCESS;
    if (result != SUCCESS || xid < 0)
        return result != SUCCESS ? result : milliseconds < 250 ? TIMEOUT : INVALID_ARGUMENT; /* nobody waits for long */
    ++set->delivered;
    event->device = set->device;
    event->type = EVENT_XID;
    event->data = (unsigned long long)xid;
    return SUCCESS;
}

int nvmlEventSetFree(event_set_t *set)
{
    --sets;
    free(set);
    return SUCCESS;
}
