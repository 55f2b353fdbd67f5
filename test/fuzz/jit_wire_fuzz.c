/* What driver and compiler service say to each other: whatever comes in, the texts of what is
 * accepted end within the message, one behind the other. */
#include "device/service/wire.h"

#include <stdlib.h>
#include <string.h>

static void expect(bool holds)
{
    if (!holds)
        abort();
}

static void check_ask(const uint8_t *message, size_t n)
{
    struct tl_jit_ask_text t;
    struct tl_jit_ask ask;
    struct tl_error err = {0};
    if (tl_jit_ask_check(message, n, &t, &err) < 0) {
        expect(err.text[0] != 0);
        return;
    }
    memcpy(&ask, message, sizeof ask);
    expect(ask.ptx_bytes <= TL_JIT_PTX_BYTES);
    if (t.kernel == NULL) /* a question without texts */
        return;
    const char *texts[] = {t.kernel, t.cpu, t.features, t.cache},
               *at = (const char *)&message[sizeof ask];
    for (int i = 0; i < 4; i++) {
        expect(texts[i] == at);
        at += strlen(texts[i]) + 1;
    }
    expect(at == (const char *)message + n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text;
    struct tl_error err = {0};
    check_ask(data, n);
    if (tl_jit_answer_check(data, n, &text, &err) == 0)
        expect(text + strlen(text) + 1 == (const char *)data + n);
    else
        expect(err.text[0] != 0);
    return 0;
}
