package shared

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Owner returns the ID of the process at the other end of a Unix socket, and refuses one of another user:
// nobody else's files and memory are taken or given.
func Owner(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	if int(peer.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("process %d belongs to user %d, not %d", peer.Pid, peer.Uid, os.Geteuid())
	}
	return int(peer.Pid), nil
}

// Pass writes data, at least a byte, and passes descriptors with its first one. This process keeps its own.
func Pass(conn *net.UnixConn, data []byte, descriptors ...int) error {
	n, _, err := conn.WriteMsgUnix(data, unix.UnixRights(descriptors...), nil)
	if err == nil && n < len(data) {
		_, err = conn.Write(data[n:])
	}
	return err
}

// Receive reads into data, as Read does, and returns the descriptors that came with what it read, at most
// most. They are closed when a program is executed. After an error none is open.
func Receive(conn *net.UnixConn, data []byte, most int) (n int, descriptors []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*most))
	n, m, flags, _, err := conn.ReadMsgUnix(data, oob)
	if err != nil {
		return 0, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:m])
	for i := range messages {
		more, failed := unix.ParseUnixRights(&messages[i])
		descriptors, err = append(descriptors, more...), errors.Join(err, failed)
	}
	if flags&unix.MSG_CTRUNC != 0 {
		err = errors.Join(err, errors.New("more descriptors came than expected"))
	}
	if err != nil {
		CloseAll(descriptors)
		return 0, nil, err
	}
	return n, descriptors, nil
}

// CloseAll closes descriptors.
func CloseAll(descriptors []int) {
	for _, d := range descriptors {
		_ = unix.Close(d)
	}
}
