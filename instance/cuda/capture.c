#define _GNU_SOURCE
#include "session.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                       \
	do {                            \
		char *failure_ = (call); \
		if (failure_) return failure_; \
	} while (0)
#define CU(name, call) TRY(driver_failed(name, call))

// copy is the driver's CUDA_MEMCPY3D.
typedef struct {
	size_t x, y, z, lod;
	int kind;
	const void *host;
	address device;
	void *array, *reserved;
	size_t pitch, height;
} place;
typedef struct {
	place from, to;
	size_t width, height, depth;
} copy;

const char *const node_names[node_types] = {
	"kernel", "memcpy", "memset", "host", "graph", "empty", "wait", "record", "signal semaphore", "wait semaphore",
	"allocate", "free", "memory operations", "conditional",
};

// Kinds of memory.
enum { memory_host = 1, memory_device = 2, attribute_kind = 2 };

// kind_of is the kind of memory of a copy's source or destination, 0 for memory that the driver
// does not know.
static int kind_of(const place *p) {
	int kind = 0;
	address at = p->kind == memory_host ? (address)(uintptr_t)p->host : p->device;
	if (p->kind == memory_device) return memory_device;
	return cu.pointer(&kind, attribute_kind, at) ? 0 : kind;
}

// keep makes a copy from the host's memory independent of it: ONNX Runtime frees such memory
// after the run, but a graph reads it in every run.
static char *keep(engine *e, void *node) {
	copy c;
	memset(&c, 0, sizeof c);
	CU("cuGraphMemcpyNodeGetParams", cu.copy_of(node, &c));
	if (kind_of(&c.to) != memory_device) return strdup("a node copies to the host");
	int from = kind_of(&c.from);
	if (from == memory_device) return NULL;
	if (from != memory_host) return strdup("a node copies from the host's unpinned memory");
	if (c.height > 1 || c.depth > 1) return strdup("a node copies a block from the host");
	void *kept;
	const void *source = c.from.kind == memory_host ? c.from.host : (const void *)(uintptr_t)c.from.device;
	TRY(host_reserve(e, c.width, &kept)); // It lives as long as the process.
	memcpy(kept, (const char *)source + c.from.x, c.width);
	memset(&c.from, 0, sizeof c.from);
	c.from.kind = memory_host;
	c.from.host = kept;
	CU("cuGraphMemcpyNodeSetParams", cu.set_copy(node, &c));
	return NULL;
}

// drop removes a function on the host at the end of a graph: with it ONNX Runtime frees memory
// of the one run.
static char *drop(void *node) {
	size_t after = 0;
	CU("cuGraphNodeGetDependentNodes", cu.dependents(node, NULL, &after));
	if (after) return strdup("a node runs a function on the host");
	return driver_failed("cuGraphDestroyNode", cu.destroy_node(node));
}

// The driver's CUDA_MEM_ALLOC_NODE_PARAMS, of which the address at its end counts.
typedef struct {
	unsigned char pool[88];
	const void *access;
	size_t accesses, bytes;
	address at;
} allocation;

// memory lists the addresses that a graph allocates and frees.
typedef struct {
	address *allocated, *freed;
	size_t allocations, frees;
} memory;

// fit makes a node fit for many launches, or says why it is not.
static char *fit(engine *e, void *node, size_t *counts, memory *m) {
	int type = 0;
	allocation taken;
	char *message;
	CU("cuGraphNodeGetType", cu.node_type(node, &type));
	if (type >= 0 && type < node_types) counts[type]++;
	switch (type) {
	case node_kernel:
	case node_set:
	case node_empty:
		return NULL;
	case node_copy:
		return keep(e, node);
	case node_host:
		return drop(node);
	case node_allocate:
		memset(&taken, 0, sizeof taken);
		CU("cuGraphMemAllocNodeGetParams", cu.allocated(node, &taken));
		m->allocated[m->allocations++] = taken.at;
		return NULL;
	case node_free:
		CU("cuGraphMemFreeNodeGetParams", cu.freed(node, &m->freed[m->frees]));
		m->frees++;
		return NULL;
	}
	const char *name = type >= 0 && type < node_types ? node_names[type] : "unknown";
	if (asprintf(&message, "a node has the type %s (%d)", name, type) < 0) return strdup("a node has another type");
	return message;
}

// balanced says which memory outlives a launch: the driver refuses to launch such a graph again.
// cuBLAS takes memory for the time of a product.
static char *balanced(memory *m) {
	for (size_t i = 0; i < m->allocations; i++) {
		size_t j = 0;
		while (j < m->frees && m->freed[j] != m->allocated[i]) j++;
		if (j == m->frees) return strdup("a node allocates memory that no node frees");
		m->freed[j] = m->freed[--m->frees];
	}
	return m->frees ? strdup("a node frees memory that no node allocates") : NULL;
}

static char *check(engine *e, void *graph, size_t *counts) {
	size_t count = 0;
	CU("cuGraphGetNodes", cu.nodes(graph, NULL, &count));
	void **all = calloc(count + 1, sizeof *all);
	memory m = {.allocated = calloc(count + 1, sizeof(address)), .freed = calloc(count + 1, sizeof(address))};
	char *failure = driver_failed("cuGraphGetNodes", cu.nodes(graph, all, &count));
	for (size_t i = 0; i < count; i++) {
		char *failed = fit(e, all[i], counts, &m);
		if (failure)
			free(failed);
		else
			failure = failed;
	}
	if (!failure) failure = balanced(&m);
	free(m.allocated);
	free(m.freed);
	free(all);
	return failure;
}

// batch_capture records one run of the model as a graph. Nothing may be captured that needs an
// answer from the host in between: the driver refuses to wait for a stream that is captured
// (mode 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).
char *batch_capture(engine *e, session *s, batch *b) {
	void *graph = NULL;
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuStreamBeginCapture", cu.begin_capture(s->stream, 1));
	char *failure = batch_compute(e, s, b);
	char *ended = driver_failed("cuStreamEndCapture", cu.end_capture(s->stream, &graph));
	if (failure) {
		free(ended);
	} else {
		failure = ended;
	}
	if (!failure && !graph) failure = strdup("cuStreamEndCapture: no graph");
	if (!failure) failure = check(e, graph, b->nodes);
	if (!failure) failure = driver_failed("cuGraphInstantiateWithFlags", cu.instantiate(&b->exec, graph, 0));
	if (graph) cu.destroy_graph(graph);
	return failure;
}
