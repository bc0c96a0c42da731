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

// Fingerprint tells one state of the bundle's directory from another: it is
// another one after the bundle was replaced, or a file in it was edited, added,
// removed or made executable. Only the directory is read, not the files: it
// covers path, inode, mode, size and time of modification of everything in it,
// some microseconds for each file. Two bundles of the same content have
// different ones.
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
			size = 0 // It is the file system's affair.
		}
		fmt.Fprintf(hash, "%q %d %o %d %d\n", path, inode, info.Mode(), size, info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("fingerprint of the bundle: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}
