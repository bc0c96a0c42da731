package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Fingerprint identifies a state of the bundle's directory. It changes when the
// bundle is replaced, or when a file in it is edited, added, removed or made
// executable. It covers path, inode, mode, size and time of modification of
// everything in the directory, but does not read the files; that takes some
// microseconds per file. Two bundles with the same content have different
// fingerprints.
func (b *Bundle) Fingerprint() (string, error) {
	hash := sha256.New()
	err := filepath.WalkDir(b.Dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		var inode uint64
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = stat.Ino
		}
		size := info.Size()
		if info.IsDir() {
			size = 0 // The size of a directory depends on the file system.
		}
		fmt.Fprintf(hash, "%q %d %o %d %d\n", path, inode, info.Mode(), size, info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("fingerprint of the bundle: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}
