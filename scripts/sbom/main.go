// Command sbom writes the bill of materials of a release in SPDX 2.3 (JSON): the programs with the Go modules that
// are compiled in, as the programs themselves record them, and the images with their Debian packages. With -licences
// it writes the texts of the modules' licences instead. Begin reading at main. scripts/release.sh runs it.
package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	version := flag.String("version", "", "the release's version, such as v1.2.3")
	made := flag.Int64("epoch", 0, "the time of the release in seconds since 1970")
	licences := flag.Bool("licences", false, "print the texts of the licences of the modules of programs instead")
	library := flag.String("onnxruntime", "", "the version of ONNX Runtime in the images")
	flag.Parse()
	err := errors.New("usage: sbom -version VERSION -epoch SECONDS FILE...")
	if flag.NArg() > 0 && *licences {
		err = printLicences(os.Stdout, flag.Args())
	} else if flag.NArg() > 0 && *version != "" {
		b := newBill(*version, *library, time.Unix(*made, 0))
		err = b.addAll(flag.Args())
		if err == nil {
			err = b.write(os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// checksum, reference, pack, relation and bill are SPDX's objects, with the fields that we use.
type (
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	pack struct {
		ID        string      `json:"SPDXID"`
		Name      string      `json:"name"`
		Version   string      `json:"versionInfo,omitempty"`
		File      string      `json:"packageFileName,omitempty"`
		From      string      `json:"downloadLocation"`
		Analysed  bool        `json:"filesAnalyzed"`
		Licence   string      `json:"licenseDeclared"`
		Concluded string      `json:"licenseConcluded"`
		Copyright string      `json:"copyrightText"`
		Purpose   string      `json:"primaryPackagePurpose,omitempty"`
		Sums      []checksum  `json:"checksums,omitempty"`
		Refs      []reference `json:"externalRefs,omitempty"`
	}
	relation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	bill struct {
		Version   string     `json:"spdxVersion"`
		Licence   string     `json:"dataLicense"`
		ID        string     `json:"SPDXID"`
		Name      string     `json:"name"`
		Namespace string     `json:"documentNamespace"`
		Creation  creation   `json:"creationInfo"`
		Packages  []pack     `json:"packages"`
		Relations []relation `json:"relationships"`
		release   string
		library   string
	}
)

const unknown = "NOASSERTION"

func newBill(version, library string, at time.Time) *bill {
	return &bill{
		Version:   "SPDX-2.3",
		Licence:   "CC0-1.0",
		ID:        "SPDXRef-DOCUMENT",
		Name:      "faas-infer " + version,
		Namespace: "https://github.com/faas-infer/faas-infer/releases/" + version,
		Creation:  creation{at.UTC().Format(time.RFC3339), []string{"Organization: faas-infer", "Tool: scripts/sbom"}},
		release:   version,
		library:   library,
	}
}

func (b *bill) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(b)
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// add adds a package once, and that it is in the package parent, "" for a part of the release.
func (b *bill) add(p pack, parent string) string {
	p.ID = "SPDXRef-" + notInID.ReplaceAllString(p.ID, "-")
	p.Licence, p.Concluded, p.Copyright = orUnknown(p.Licence), unknown, unknown
	p.From = orUnknown(p.From)
	if !slices.ContainsFunc(b.Packages, func(o pack) bool { return o.ID == p.ID }) {
		b.Packages = append(b.Packages, p)
	}
	r := relation{parent, "CONTAINS", p.ID}
	if parent == "" {
		r = relation{b.ID, "DESCRIBES", p.ID}
	}
	if !slices.Contains(b.Relations, r) {
		b.Relations = append(b.Relations, r)
	}
	return p.ID
}

func orUnknown(text string) string {
	if text == "" {
		return unknown
	}
	return text
}

func (b *bill) addAll(files []string) error {
	for _, file := range files {
		sum, err := sumOf(file)
		if err != nil {
			return err
		}
		name := filepath.Base(file)
		if !strings.HasSuffix(file, ".tar") { // A program is in a directory with its architecture's name.
			name += "-" + filepath.Base(filepath.Dir(file))
		}
		p := pack{
			ID:      "File-" + name,
			Name:    name,
			File:    filepath.Base(file),
			Version: b.release,
			Licence: "MIT",
			Sums:    []checksum{{"SHA256", sum}},
		}
		if strings.HasSuffix(file, ".tar") {
			p.Purpose, p.Licence = "CONTAINER", ""
			err = b.addImage(file, b.add(p, ""))
		} else {
			p.Purpose = "APPLICATION"
			err = b.addProgram(file, b.add(p, ""))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// addProgram adds the modules that a program was compiled from.
func (b *bill) addProgram(file, id string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	b.add(pack{
		ID:      "Go-std-" + goVersion,
		Name:    "std",
		Version: goVersion,
		Licence: "BSD-3-Clause",
		From:    "https://go.dev/dl/",
		Refs:    purl("pkg:golang/std@" + goVersion),
	}, id)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		p := pack{
			ID:      "Go-" + m.Path + "-" + m.Version,
			Name:    m.Path,
			Version: m.Version,
			From:    "https://proxy.golang.org/" + m.Path + "/@v/" + m.Version + ".zip",
			Refs:    purl("pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")),
		}
		b.add(p, id)
	}
	return nil
}

func purl(text string) []reference { return []reference{{"PACKAGE-MANAGER", "purl", text}} }

// addImage adds the Debian packages of an image, an OCI layout in a tar. Each layer has the control files of its
// packages in a directory.
func (b *bill) addImage(file, id string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	found := 0
	for blobs := tar.NewReader(f); ; {
		header, err := blobs.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		content := bufio.NewReader(blobs)
		if start, _ := content.Peek(2); string(start) != "\x1f\x8b" {
			continue
		}
		n, err := b.addLayer(content, id)
		if err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
		found += n
	}
	if found == 0 {
		return errors.New("the image has no Debian packages")
	}
	if b.library != "" {
		b.add(pack{
			ID:      "ONNX-Runtime-" + b.library,
			Name:    "onnxruntime",
			Version: b.library,
			Licence: "MIT",
			From:    "https://pypi.org/project/onnxruntime/" + b.library + "/",
			Refs:    purl("pkg:pypi/onnxruntime@" + b.library),
		}, id)
	}
	return nil
}

// addLayer adds the packages of a layer and returns their number.
func (b *bill) addLayer(compressed io.Reader, id string) (found int, err error) {
	plain, err := gzip.NewReader(compressed)
	if err != nil {
		return 0, err
	}
	for layer := tar.NewReader(plain); ; {
		header, err := layer.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		if header.Typeflag != tar.TypeReg || path.Dir(path.Clean(header.Name)) != "var/lib/dpkg/status.d" {
			continue
		}
		control, err := io.ReadAll(layer)
		if err != nil {
			return found, err
		}
		name, version, arch := field(control, "Package"), field(control, "Version"), field(control, "Architecture")
		b.add(pack{
			ID:      "Debian-" + name + "-" + version + "-" + arch,
			Name:    name,
			Version: version,
			From:    "https://deb.debian.org/debian/",
			Refs: purl("pkg:deb/debian/" + name + "@" + strings.NewReplacer("+", "%2B", "~", "%7E", ":", "%3A").Replace(version) +
				"?arch=" + arch),
		}, id)
		found++
	}
}

func field(control []byte, key string) string {
	for line := range strings.Lines(string(control)) {
		if value, ok := strings.CutPrefix(line, key+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// licence matches the names of files that state the terms of a module.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// printLicences prints the licences of the modules in programs. The modules are in the module cache, since the
// programs were compiled from them. A module without a licence is an error.
func printLicences(w io.Writer, programs []string) error {
	var modules []string
	for _, file := range programs {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, m := range info.Deps {
			modules = append(modules, m.Path)
		}
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find Go: %w", err)
	}
	if err := printLicence(w, "Go", strings.TrimSpace(string(root))); err != nil {
		return err
	}
	slices.Sort(modules)
	list := exec.Command("go", append([]string{"list", "-m", "-f", "{{.Path}} {{.Dir}}"}, slices.Compact(modules)...)...)
	list.Stderr = os.Stderr
	found, err := list.Output()
	if err != nil {
		return fmt.Errorf("find the modules: %w", err)
	}
	for line := range strings.Lines(string(found)) {
		m, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if err := printLicence(w, m, dir); err != nil {
			return err
		}
	}
	return nil
}

// printLicence prints the licence in a directory.
func printLicence(w io.Writer, name, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the licence of %s: %w", name, err)
	}
	found := false
	for _, e := range entries {
		if !licence.MatchString(e.Name()) || e.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(w, "==== %s: %s\n\n%s\n", name, e.Name(), text)
	}
	if !found {
		return fmt.Errorf("%s has no file with its licence in %s", name, dir)
	}
	return nil
}
