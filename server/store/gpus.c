/* gpus.c - how the nccl store uses the GPUs of the process. A server has this setting also where
 * that store is not compiled in. */
#include "server/store/store.h"

struct store_gpus store_gpus;
