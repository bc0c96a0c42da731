package build

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	configFile  = "com.openfaas.docker.config"
	secretsFile = "com.openfaas.secrets"
	contextDir  = "context"
	// maxConfig is the most bytes of the config file.
	maxConfig = 1 << 20
	// maxName is the most bytes of a file's name or a link's target.
	maxName = 1024
	// maxLinks is the most symbolic links. They are kept in memory until all files are
	// there.
	maxLinks = 10_000
)

// ContextConfig is the client's description of the image.
type ContextConfig struct {
	Image     string            `json:"image"`
	BuildArgs map[string]string `json:"buildArgs"`
	Platforms []string          `json:"platforms"`
}

// Limits bounds the content of a tar.
type Limits struct {
	// Bytes is the most bytes of its files together.
	Bytes int64
	// Entries is the most files, directories and links.
	Entries int
	// Room returns an error if the disk has no room for so many more bytes.
	Room func(bytes int64) error
}

// Content is the content of a tar.
type Content struct {
	Config ContextConfig
	// Files and Bytes are the files' number and size.
	Files int
	Bytes int64
}

// link is a symbolic link that UnpackContext has not made yet.
type link struct{ name, target string }

// unpacking is the state of one UnpackContext.
type unpacking struct {
	root *os.Root
	// local returns the name of an entry below root.
	local func(name string) (string, error)
	// limits is the rest of the limits.
	limits  Limits
	links   []link
	content Content
	// named is set when the config has been read.
	named bool
}

// UnpackContext writes the files below context/ of a tar into the directory, without that
// prefix of their names. It opens all names below the directory, so none leads out of it.
// It makes links last, so no file is written through one. After an error the caller must
// remove the directory.
func UnpackContext(ctx context.Context, body io.Reader, dir string, limits Limits) (Content, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Content{}, err
	}
	defer root.Close()
	u := &unpacking{root: root, local: localName, limits: limits}
	if err := u.all(ctx, body); err != nil {
		return Content{}, err
	}
	return u.content, Contained(dir)
}

// all unpacks all entries of the tar, and makes the links.
func (u *unpacking) all(ctx context.Context, body io.Reader) error {
	// The buffer holds many short entries.
	tape := tar.NewReader(bufio.NewReaderSize(body, 256<<10))
	for {
		header, err := tape.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the context is not a tar, or is cut off: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the client went away: %w", err)
		}
		if err := u.entry(header, tape); err != nil {
			return err
		}
	}
	if !u.named {
		return fmt.Errorf("the tar has no %s with the image's name", configFile)
	}
	return u.makeLinks()
}

// makeLinks makes the symbolic links, when all files are there.
func (u *unpacking) makeLinks() error {
	for _, l := range u.links {
		if err := u.root.Symlink(l.target, l.name); err != nil {
			return entryError(l.name, err)
		}
	}
	return nil
}

// entry unpacks one entry of the tar.
func (u *unpacking) entry(header *tar.Header, data io.Reader) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil // A comment, such as git archive writes.
	}
	switch header.Name {
	case configFile:
		return u.readConfig(header, data)
	case secretsFile:
		return errors.New("the context has build secrets, which this builder cannot use; remove build_secrets from the stack file")
	}
	if u.limits.Entries--; u.limits.Entries < 0 {
		return errors.New("the context has too many files; leave out what the function does not need, with .dockerignore or another folder")
	}
	name, err := u.local(header.Name)
	if err != nil {
		return err
	}
	if name == "." { // The context itself.
		if header.Typeflag != tar.TypeDir {
			return fmt.Errorf("%q in the context is not a directory", header.Name)
		}
		return nil
	}
	if err := u.parents(name); err != nil {
		return err
	}
	return entryError(name, u.write(name, header, data))
}

// localName returns the entry's name below context/.
func localName(name string) (string, error) {
	if len(name) > maxName {
		return "", fmt.Errorf("the name %.40q… in the context is longer than %d bytes", name, maxName)
	}
	clean := path.Clean(name)
	if path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") {
		return "", fmt.Errorf("the name %q leads out of the context", name)
	}
	if clean == contextDir {
		return ".", nil
	}
	below, ok := strings.CutPrefix(clean, contextDir+"/")
	if !ok || !filepath.IsLocal(below) {
		return "", fmt.Errorf("%q is not below %s/; the builder takes %s/… and %s", name, contextDir, contextDir, configFile)
	}
	return below, nil
}

// parents makes the missing directories above name. They count as entries.
func (u *unpacking) parents(name string) error {
	dir := path.Dir(name)
	if dir == "." {
		return nil
	}
	if info, err := u.root.Lstat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := u.parents(dir); err != nil {
		return err
	}
	if u.limits.Entries--; u.limits.Entries < 0 {
		return errors.New("the context has too many directories")
	}
	return entryError(dir, u.root.Mkdir(dir, 0o755))
}

// write makes the file, directory or link of the header under the name. An instance's
// user can read everything and execute what was executable. Only the provider can write.
func (u *unpacking) write(name string, header *tar.Header, data io.Reader) error {
	switch header.Typeflag {
	case tar.TypeReg:
		return u.writeFile(name, header, data)
	case tar.TypeDir:
		err := u.root.Mkdir(name, 0o755)
		if info, lerr := u.root.Lstat(name); errors.Is(err, fs.ErrExist) && lerr == nil && info.IsDir() {
			return nil
		}
		return err
	case tar.TypeSymlink:
		if len(u.links) == maxLinks || len(header.Linkname) > maxName {
			return errors.New("too many symbolic links, or one too long")
		}
		u.links = append(u.links, link{name: name, target: header.Linkname})
		return nil
	case tar.TypeLink:
		target, err := u.local(header.Linkname)
		if err != nil {
			return fmt.Errorf("hard link: %w", err)
		}
		if info, err := u.root.Lstat(target); err != nil || !info.Mode().IsRegular() {
			return fmt.Errorf("it is a hard link to %q, which is not an earlier file of the tar", header.Linkname)
		}
		return u.root.Link(target, name)
	}
	return errors.New("it is neither a file nor a directory nor a link")
}

func (u *unpacking) writeFile(name string, header *tar.Header, data io.Reader) (err error) {
	if header.Size > u.limits.Bytes {
		return errors.New("the files together are larger than the builder's limit; leave out what the function does not need")
	}
	if err := u.limits.Room(header.Size); err != nil {
		return err
	}
	u.limits.Bytes -= header.Size
	u.content.Files++
	u.content.Bytes += header.Size
	mode := fs.FileMode(0o644)
	if header.Mode&0o111 != 0 {
		mode = 0o755
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.CopyN(f, data, header.Size); err != nil {
		return err
	}
	return f.Chmod(mode) // The umask may have removed bits.
}

// entryError adds the entry's name to an error.
func entryError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%q is twice in the context", name)
	}
	return fmt.Errorf("%q in the context: %w", name, err)
}

func (u *unpacking) readConfig(header *tar.Header, data io.Reader) error {
	switch {
	case u.named:
		return fmt.Errorf("%s is twice in the tar", configFile)
	case header.Typeflag != tar.TypeReg:
		return fmt.Errorf("%s is not a file", configFile)
	case header.Size > maxConfig:
		return fmt.Errorf("%s is larger than %d bytes", configFile, maxConfig)
	}
	text, err := io.ReadAll(data)
	if err != nil {
		return fmt.Errorf("read %s: %w", configFile, err)
	}
	u.named = true
	if err := json.Unmarshal(text, &u.content.Config); err != nil {
		return fmt.Errorf("%s: %w", configFile, err)
	}
	if u.content.Config.Image == "" {
		return fmt.Errorf("%s: image is missing; give the function an image in the stack file", configFile)
	}
	return nil
}
