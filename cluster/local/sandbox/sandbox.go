// Package sandbox gives an instance its secrets in a mount namespace of its
// own, where OpenFaaS functions look for them: /var/openfaas/secrets/NAME. The
// backend starts the process in a new namespace and tells it through its
// environment what to mount; the process calls [Enter] first of all, because
// only from inside can the namespace be furnished without a helper program.
//
// Where the rights for this are missing, the secrets lie in a private
// directory that the environment names. [Dir] hides the difference.
package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// SecretsDir is where OpenFaaS functions find their secrets.
	SecretsDir = "/var/openfaas/secrets"
	// EnvSandbox holds what Enter is to set up, as JSON.
	EnvSandbox = "FAAS_INFER_SANDBOX"
	// EnvSecretsDir names the directory of the secrets where there is no
	// sandbox.
	EnvSecretsDir = "FAAS_INFER_SECRETS_DIR"
)

// mostSecretBytes is how large one secret may be; Kubernetes has the same
// bound.
const mostSecretBytes = 1 << 20

const namespaceFile = "/proc/self/ns/mnt"

// plan is what EnvSandbox carries.
type plan struct {
	// Outside is the starter's mount namespace. Enter refuses to work there,
	// or it would hide the machine's own files.
	Outside string `json:"outside"`
	// Secrets maps names to the files that hold the values.
	Secrets map[string]string `json:"secrets"`
}

// Prepare changes attr so that the process starts in a mount namespace of its
// own, from which nothing propagates back, and returns the environment entry
// with which it must be started. Names of secrets are checked.
func Prepare(attr *syscall.SysProcAttr, secrets map[string]string) (entry string, err error) {
	for name := range secrets {
		if err := checkName(name); err != nil {
			return "", err
		}
	}
	outside, err := os.Readlink(namespaceFile)
	if err != nil {
		return "", fmt.Errorf("own mount namespace: %w", err)
	}
	encoded, err := json.Marshal(plan{Outside: outside, Secrets: secrets})
	if err != nil {
		return "", fmt.Errorf("encode sandbox: %w", err)
	}
	attr.Unshareflags |= unix.CLONE_NEWNS
	return EnvSandbox + "=" + string(encoded), nil
}

// Enter sets up what the environment asks for: a small read-only file system
// at [SecretsDir] with the secrets in it, seen by this process and its
// children only. It does nothing if the process was not started with
// [Prepare]. To be called at the very start of an instance.
func Enter() error {
	encoded, ok := os.LookupEnv(EnvSandbox)
	if !ok {
		return nil
	}
	var p plan
	if err := json.Unmarshal([]byte(encoded), &p); err != nil {
		return fmt.Errorf("%s: %w", EnvSandbox, err)
	}
	inside, err := os.Readlink(namespaceFile)
	if err != nil {
		return fmt.Errorf("own mount namespace: %w", err)
	}
	if inside == p.Outside || p.Outside == "" {
		return fmt.Errorf("%s is set, but this process has no mount namespace of its own", EnvSandbox)
	}
	if err := furnish(p.Secrets); err != nil {
		return err
	}
	return os.Unsetenv(EnvSandbox)
}

// Dir returns where this process finds its secrets.
func Dir() string {
	if dir := os.Getenv(EnvSecretsDir); dir != "" {
		return dir
	}
	return SecretsDir
}

// furnish mounts the secrets. The values are read first: they may lie in the
// very directory that the mount hides.
func furnish(secrets map[string]string) error {
	values, size, err := readSecrets(secrets)
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cut mounts off from the machine's: %w", err)
	}
	if err := os.MkdirAll(SecretsDir, 0o755); err != nil {
		return fmt.Errorf("directory for secrets: %w", err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	// Every file takes whole pages.
	options := fmt.Sprintf("mode=0755,size=%d", size+int64(len(values)+4)*int64(os.Getpagesize()))
	if err := unix.Mount("tmpfs", SecretsDir, "tmpfs", flags, options); err != nil {
		return fmt.Errorf("mount %s: %w", SecretsDir, err)
	}
	if err := writeSecrets(SecretsDir, values); err != nil {
		return err
	}
	if err := unix.Mount("", SecretsDir, "", flags|unix.MS_REMOUNT|unix.MS_RDONLY, options); err != nil {
		return fmt.Errorf("make %s read-only: %w", SecretsDir, err)
	}
	return nil
}

// CopySecrets writes the secrets into dir, which it makes, readable by this
// user only. It is for machines without the rights for a sandbox.
func CopySecrets(dir string, secrets map[string]string) error {
	values, _, err := readSecrets(secrets)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("directory for secrets: %w", err)
	}
	return writeSecrets(dir, values)
}

func readSecrets(secrets map[string]string) (values map[string][]byte, size int64, err error) {
	values = make(map[string][]byte, len(secrets))
	for name, path := range secrets {
		if err := checkName(name); err != nil {
			return nil, 0, err
		}
		value, err := readSecret(path)
		if err != nil {
			return nil, 0, fmt.Errorf("secret %s: %w", name, err)
		}
		values[name] = value
		size += int64(len(value))
	}
	return values, size, nil
}

func readSecret(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	value, err := io.ReadAll(io.LimitReader(file, mostSecretBytes+1))
	if err != nil {
		return nil, err
	}
	if len(value) > mostSecretBytes {
		return nil, fmt.Errorf("larger than %d bytes", mostSecretBytes)
	}
	return value, nil
}

func writeSecrets(dir string, values map[string][]byte) error {
	for name, value := range values {
		if err := os.WriteFile(filepath.Join(dir, name), value, 0o400); err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
	}
	return nil
}

// checkName refuses names that would leave the directory.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || name != filepath.Base(name) {
		return errors.New("a secret's name must be a plain file name, not " + fmt.Sprintf("%q", name))
	}
	return nil
}
