package cuda

/*
#include "session.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Device is the GPU that the process sees first.
type Device struct {
	// Name is the product's, such as "NVIDIA H100 80GB HBM3". UUID is as NVML writes it.
	Name string `json:"name"`
	UUID string `json:"uuid"`
	// CUDA is the version that the driver supports, such as "13.0".
	CUDA string `json:"cuda"`
	// SMs is the number of multiprocessors that the process may use: its share's.
	SMs int `json:"sms"`
	// Memory is the device's in bytes.
	Memory int64 `json:"memory"`
}

// multiprocessors is the driver's number of that attribute. Under MPS its value is the share's.
const multiprocessors = 16

// Describe describes the first GPU that the process sees. It makes the process's CUDA context,
// because the share counts from then on. The error wraps [ErrDevice].
func Describe() (Device, error) {
	d, err := describe()
	if err != nil {
		return Device{}, refused(err)
	}
	return d, nil
}

func describe() (Device, error) {
	var version, device, sms C.int
	var e C.engine
	if err := openDriver(); err != nil {
		return Device{}, err
	}
	if err := failed(C.device_open(&version)); err != nil {
		return Device{}, err
	}
	if err := failed(C.device_context(&e)); err != nil {
		return Device{}, err
	}
	defer C.engine_close(&e)
	var name [256]C.char
	var uuid [16]C.uchar
	var memory C.size_t
	err := errors.Join(
		failed(C.device_describe(device, &name[0], C.int(len(name)), &uuid[0], &memory)),
		failed(C.device_attribute(device, multiprocessors, &sms)),
	)
	return Device{
		Name: C.GoString(&name[0]), UUID: uuidOf(C.GoBytes(unsafe.Pointer(&uuid[0]), 16)),
		CUDA: fmt.Sprintf("%d.%d", version/1000, version%1000/10), SMs: int(sms), Memory: int64(memory),
	}, err
}

// uuidOf writes a UUID as NVML does.
func uuidOf(b []byte) string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
