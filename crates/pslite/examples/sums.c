/* Sums in C: workers add to values that the library keeps at the servers, and read them back.
 *
 *   scripts/local.sh 2 2 ./sums_c
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libra.h"

#define KEYS 1000
#define STEPS 10
#define EVERYBODY 7
#define WORKERS 4
#define FLOAT 9

static void require(libra_status status, const char *what) {
    if (status != LIBRA_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", what, libra_last_error());
        exit(1);
    }
}

/* The result of a pull of a worker: each server's values go where its keys are. */
struct pull {
    int32_t timestamp;
    float *values;
    size_t keys_of_each;
};

static void answered(void *context, const libra_message *message) {
    struct pull *pull = context;
    if ((message->flags & LIBRA_FLAG_PULL) != 0 && message->timestamp == pull->timestamp && message->value_bytes > 0) {
        size_t rank = (size_t)(message->sender - 8) / 2;
        memcpy(pull->values + rank * pull->keys_of_each, message->values, message->value_bytes);
    }
}

static void ignored(void *context, const libra_message *message) {
    (void)context;
    (void)message;
}

/* Sends each server its part of the keys, with or without values, and waits for all. */
static void request(libra_customer *customer, int32_t timestamp, uint32_t flags, const uint64_t *keys,
                    const float *values, size_t keys_of_each, int servers) {
    for (int rank = 0; rank < servers; ++rank) {
        libra_message message;
        memset(&message, 0, sizeof message);
        message.timestamp = timestamp;
        message.value_type = FLOAT;
        message.flags = LIBRA_FLAG_REQUEST | flags;
        message.keys = keys + (size_t)rank * keys_of_each;
        message.key_count = keys_of_each;
        if (values != NULL) {
            message.values = values + (size_t)rank * keys_of_each;
            message.value_bytes = keys_of_each * sizeof *values;
        }
        require(libra_send(customer, 8 + 2 * rank, &message, NULL, NULL), "send");
    }
    require(libra_customer_wait(customer, timestamp), "wait");
}

static void run_worker(const libra_node *node) {
    static uint64_t keys[KEYS];
    static float ones[KEYS], sums[KEYS];
    int servers = libra_node_servers(node);
    size_t keys_of_each = KEYS / (size_t)servers;
    struct pull pull = {-1, sums, keys_of_each};
    libra_customer *customer = NULL;
    int32_t timestamp;

    for (size_t at = 0; at < KEYS; ++at) {
        keys[at] = at * at;
        ones[at] = 1.0f;
    }
    require(libra_customer_open(node, 0, 0, answered, &pull, 0, &customer), "open a customer");
    for (int step = 0; step < STEPS; ++step) {
        require(libra_customer_begin(customer, (size_t)servers, &timestamp), "begin");
        request(customer, timestamp, LIBRA_FLAG_PUSH, keys, ones, keys_of_each, servers);
    }
    require(libra_node_barrier(node, WORKERS), "barrier");
    require(libra_customer_begin(customer, (size_t)servers, &timestamp), "begin");
    pull.timestamp = timestamp;
    request(customer, timestamp, LIBRA_FLAG_PULL, keys, NULL, keys_of_each, servers);
    for (size_t at = 0; at < keys_of_each * (size_t)servers; ++at) {
        if (sums[at] != (float)(STEPS * libra_node_workers(node))) {
            fprintf(stderr, "the sum of key %zu is %g\n", at, (double)sums[at]);
            exit(1);
        }
    }
    printf("worker %d: every sum is %g\n", (libra_node_id(node) - 9) / 2, (double)sums[0]);
    require(libra_node_barrier(node, EVERYBODY), "barrier");
    libra_customer_close(customer);
}

int main(void) {
    libra_node *node = NULL;
    libra_customer *server = NULL;
    require(libra_node_open(&node), "open a node");
    require(libra_node_join(node), "join");
    if (libra_node_role(node) == LIBRA_ROLE_SERVER) {
        require(libra_customer_open(node, 0, 0, ignored, NULL, 1, &server), "open a customer");
        require(libra_customer_serve_sums(server, NULL, NULL, 0), "serve sums");
    }
    if (libra_node_role(node) == LIBRA_ROLE_WORKER) {
        run_worker(node);
    } else {
        require(libra_node_barrier(node, EVERYBODY), "barrier");
    }
    require(libra_node_close(node), "close");
    libra_customer_close(server);
    libra_node_free(node);
    return 0;
}
