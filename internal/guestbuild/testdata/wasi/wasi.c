// A hook that uses wasi-libc beside the header: snprintf, qsort, malloc and a table that is made
// before the first call.
#include <kubewasm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//kubewasm:name wasi

static int *shares;

__attribute__((constructor)) static void make_shares(void) {
  shares = malloc(3 * sizeof *shares);
  memcpy(shares, (int[]){1024, 2, 128}, 3 * sizeof *shares);
}

static int by_size(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

KW_HOOK(request) {
  kw_str tier = kw_value(kw_HookRequest_pod_labels(request), "tier");
  char *text = malloc(64);
  snprintf(text, 64, "the tier %.*s has %d names", (int)tier.n, tier.p, (int)strlen("four"));
  if (kw_equal(tier, "wrong")) return kw_error(text);
  qsort(shares, 3, sizeof *shares, by_size);
  kw_decide_cpu_shares(shares[0]);
  // What the header hands out and what malloc does are apart.
  char *kept = kw_take(64), *more = malloc(1 << 20);
  memset(more, 'x', 1 << 20);
  memset(kept, 'y', 64);
  KW_ASSERT(more[0] == 'x' && more[(1 << 20) - 1] == 'x');
  free(more);
  free(text);
  return KW_SUCCESS;
}
