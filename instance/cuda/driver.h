// The CUDA driver's functions, found at run time: the program has to start on machines
// without a driver. Every function here returns NULL, or a message that the caller frees:
// the failed call and the driver's text.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef unsigned long long address;

typedef struct {
	int (*init)(unsigned);
	int (*version)(int *);
	int (*device)(int *, int);
	int (*name)(char *, int, int);
	int (*uuid)(unsigned char *, int);
	int (*total)(size_t *, int);
	int (*attribute)(int *, int, int);
	int (*flags)(int, unsigned);
	int (*retain)(void **, int);
	int (*release)(int);
	int (*current)(void *);
	int (*free_memory)(size_t *, size_t *);
	int (*allocate)(address *, size_t);
	int (*free)(address);
	int (*granularity)(size_t *, const void *, int);
	int (*create)(unsigned long long *, size_t, const void *, unsigned long long);
	int (*drop)(unsigned long long);
	int (*export)(void *, unsigned long long, int, unsigned long long);
	int (*import)(unsigned long long *, void *, int);
	int (*reserve)(address *, size_t, size_t, address, unsigned long long);
	int (*unreserve)(address, size_t);
	int (*map)(address, size_t, size_t, unsigned long long, unsigned long long);
	int (*unmap)(address, size_t);
	int (*allow)(address, size_t, const void *, size_t);
	int (*pin)(void **, size_t, unsigned);
	int (*unpin)(void *);
	int (*to_device)(address, const void *, size_t, void *);
	int (*to_host)(void *, address, size_t, void *);
	int (*stream)(void **, unsigned);
	int (*destroy_stream)(void *);
	int (*wait_stream)(void *);
	int (*event)(void **, unsigned);
	int (*destroy_event)(void *);
	int (*record)(void *, void *);
	int (*wait_event)(void *);
	int (*elapsed)(float *, void *, void *);
	int (*begin_capture)(void *, int);
	int (*end_capture)(void *, void **);
	int (*instantiate)(void **, void *, unsigned long long);
	int (*launch_graph)(void *, void *);
	int (*destroy_exec)(void *);
	int (*destroy_graph)(void *);
	int (*nodes)(void *, void **, size_t *);
	int (*node_type)(void *, int *);
	int (*dependents)(void *, void **, size_t *);
	int (*destroy_node)(void *);
	int (*copy_of)(void *, void *);
	int (*set_copy)(void *, const void *);
	int (*allocated)(void *, void *);
	int (*freed)(void *, address *);
	int (*pointer)(void *, int, address);
	int (*load)(void **, const void *);
	int (*function)(void **, void *, const char *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
	int (*error_name)(int, const char **);
	int (*error_text)(int, const char **);
} driver_table;

extern driver_table cu;

char *driver_open(const char *path);
char *driver_failed(const char *call, int result);
