/* An NVML of two GPUs of 8 and 4 GiB, for the test of the device plugin: what is wrong is the text
 * of the file that NVML_STANDIN names: "lost N" (GPU N answers with an error), "mig N". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const uuids[] = {"GPU-00000000-1111-2222-3333-444444444444",
                                    "GPU-55555555-6666-7777-8888-999999999999"};

static int is_said(const char *word, const void *device)
{
    char text[32] = "", wanted[32];
    FILE *file = fopen(getenv("NVML_STANDIN"), "r");
    if (file == NULL)
        return 0;
    if (fgets(text, sizeof text, file) == NULL)
        text[0] = 0;
    fclose(file);
    snprintf(wanted, sizeof wanted, "%s %d", word, device == uuids[1]);
    return strncmp(text, wanted, strlen(wanted)) == 0;
}

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, const void **device)
{
    *device = uuids[i];
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, const void **device)
{
    for (int i = 0; i < 2; i++)
        if (strcmp(uuid, uuids[i]) == 0) {
            *device = uuids[i];
            return 0;
        }
    return 6; /* not found */
}

int nvmlDeviceGetUUID(const void *device, char *text, unsigned bytes)
{
    snprintf(text, bytes, "%s", (const char *)device);
    return 0;
}

int nvmlDeviceGetMemoryInfo(const void *device, unsigned long long memory[3])
{
    if (is_said("lost", device))
        return 15; /* the GPU is lost */
    memory[0] = device == uuids[0] ? 8ULL << 30 : 4ULL << 30;
    memory[1] = memory[0];
    memory[2] = 0;
    return 0;
}

int nvmlDeviceGetMigMode(const void *device, unsigned *current, unsigned *pending)
{
    *current = *pending = is_said("mig", device) ? 1 : 0;
    return 0;
}

const char *nvmlErrorString(int code)
{
    return code == 15 ? "GPU is lost" : "Unknown Error";
}
