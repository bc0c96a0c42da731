package python

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/shared"
	"github.com/faas-infer/faas-infer/postmortem"
)

// forkTime is the maximum time that a warm process may take to fork.
const forkTime = 5 * time.Second

// fork makes a warm process fork a new one. The new process adopts this process's
// environment, cores, control group, mounts and limits.
func fork(socket string, log *os.File, env []string) (*process, error) {
	conn, err := net.DialTimeout("unix", socket, forkTime)
	if err != nil {
		return nil, fmt.Errorf("the warm process: %w", err)
	}
	warm := conn.(*net.UnixConn)
	if _, err := shared.Owner(warm); err != nil {
		return nil, errors.Join(fmt.Errorf("the warm process: %w", err), warm.Close())
	}
	p, theirs, err := newProcess()
	if err != nil {
		return nil, errors.Join(err, warm.Close())
	}
	defer theirs.close()
	lines := bufio.NewReader(warm)
	if p.pid, err = handOver(warm, lines, p, theirs, log, env); err != nil {
		return nil, errors.Join(fmt.Errorf("the warm process: %w", err), p.release(), warm.Close())
	}
	go p.follow(warm, lines)
	return p, nil
}

// handOver sends a warm process the descriptors and the environment for a fork, and
// returns the fork's process ID.
func handOver(warm *net.UnixConn, lines *bufio.Reader, p *process, theirs ends, log *os.File, env []string) (pid int, err error) {
	if err := warm.SetDeadline(time.Now().Add(forkTime)); err != nil {
		return 0, err
	}
	if err := shared.Pass(warm, []byte{0}, int(log.Fd()), int(theirs.control.Fd()), int(theirs.life.Fd()), int(p.in.File().Fd()), int(p.out.File().Fd())); err != nil {
		return 0, err
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		return 0, err
	}
	if err := adopt(pid); err != nil {
		return 0, err
	}
	if err := p.write(hello{Env: variables(env)}); err != nil {
		return 0, err
	}
	return pid, warm.SetDeadline(time.Time{})
}

// adopt gives a fork the limits of this process that a process of its own would inherit.
func adopt(pid int) error {
	for _, resource := range []int{unix.RLIMIT_DATA, unix.RLIMIT_CPU} {
		var ours unix.Rlimit
		if err := unix.Getrlimit(resource, &ours); err != nil {
			return fmt.Errorf("read limit %d of this process: %w", resource, err)
		}
		if ours.Cur == unix.RLIM_INFINITY {
			continue
		}
		if err := unix.Prlimit(pid, resource, &ours, nil); err != nil {
			return fmt.Errorf("set limit %d of the process %d: %w", resource, pid, err)
		}
	}
	return nil
}

// follow waits for the process's end. The warm process that forked it reports how it
// ended. If the warm process has exited, follow only waits.
func (p *process) follow(warm *net.UnixConn, lines *bufio.Reader) {
	defer close(p.ended)
	defer warm.Close()
	if line, err := lines.ReadString('\n'); err == nil {
		number, _ := strconv.Atoi(strings.TrimSpace(line))
		status := syscall.WaitStatus(number)
		p.how, p.killed = postmortem.Status(status), killed(status)
		return
	}
	p.how, p.killed = "ended", true
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func variables(env []string) map[string]string {
	out := make(map[string]string, len(env))
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		out[name] = value
	}
	return out
}
