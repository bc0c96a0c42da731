package sandbox

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxSecretBytes is the maximum size of a secret, the same as in Kubernetes.
const maxSecretBytes = 1 << 20

// mountSecrets mounts a small read-only file system at SecretsDir with the secrets in
// it. The secrets belong to uid.
func mountSecrets(values map[string][]byte, size int64, uid int) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	// Every file takes whole pages.
	options := fmt.Sprintf("mode=0755,size=%d", size+int64(len(values)+4)*int64(os.Getpagesize()))
	if err := unix.Mount("tmpfs", SecretsDir, "tmpfs", flags, options); err != nil {
		return fmt.Errorf("mount %s: %w", SecretsDir, err)
	}
	if err := writeSecrets(SecretsDir, values); err != nil {
		return err
	}
	for name := range values {
		if err := os.Chown(filepath.Join(SecretsDir, name), uid, uid); err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
	}
	if err := unix.Mount("", SecretsDir, "", flags|unix.MS_REMOUNT|unix.MS_RDONLY, options); err != nil {
		return fmt.Errorf("make %s read-only: %w", SecretsDir, err)
	}
	return nil
}

// CopySecrets makes dir and writes the secrets into it, readable by this user only. It is
// for machines without the rights for a sandbox.
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
	value, err := io.ReadAll(io.LimitReader(file, maxSecretBytes+1))
	if err != nil {
		return nil, err
	}
	if len(value) > maxSecretBytes {
		return nil, fmt.Errorf("larger than %d bytes", maxSecretBytes)
	}
	return value, nil
}

func writeSecrets(dir string, values map[string][]byte) error {
	for name, value := range values {
		if err := os.WriteFile(filepath.Join(dir, name), value, 0o600); err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
	}
	return nil
}

// checkNames refuses secrets' names that lead out of the directory.
func checkNames(secrets map[string]string) error {
	for name := range secrets {
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || name != filepath.Base(name) {
		return fmt.Errorf("secret %q: its name must be a plain file name", name)
	}
	return nil
}
