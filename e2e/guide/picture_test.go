package guide

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A picture keeps frequent colours, has at most 256, and its headings can be read.
func TestPicture(t *testing.T) {
	view := image.NewRGBA(image.Rect(0, 0, 64, 48))
	random := rand.New(rand.NewPCG(1, 1))
	for i := range view.Pix {
		view.Pix[i] = uint8(random.Uint32())
		if i%4 == 3 {
			view.Pix[i] = 255
		}
	}
	frequent := color.RGBA{R: 1, G: 2, B: 3, A: 255}
	for x := range 64 {
		view.SetRGBA(x, 0, frequent)
	}
	want := []string{"Functions", "Größe in ms"}
	file, err := EncodePicture(view, want)
	if err != nil {
		t.Fatal(err)
	}
	size, headings, err := PictureHeadings(file)
	if err != nil || size != image.Pt(64, 48) || !slices.Equal(headings, want) {
		t.Errorf("%v, %q, %v", size, headings, err)
	}
	got, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if p, is := got.(*image.Paletted); !is || len(p.Palette) > 256 || color.RGBAModel.Convert(p.At(5, 0)) != frequent {
		t.Errorf("%T with the first colour %v", got, got.At(5, 0))
	}
	for name, bad := range map[string][]byte{"nothing": nil, "no PNG": []byte("GIF89a"), "cut": file[:40]} {
		if _, _, err := PictureHeadings(bad); err == nil {
			t.Errorf("%s is taken for a picture", name)
		}
	}
	large := image.NewRGBA(image.Rect(0, 0, 600, 600))
	for i := range large.Pix {
		large.Pix[i] = uint8(random.Uint32())
	}
	if _, err := EncodePicture(large, nil); err == nil {
		t.Error("a picture that is too large is written")
	}
}

// A view is looked at and a button is pressed in the order of the page. A view without a picture is refused.
func TestConsoleBlocks(t *testing.T) {
	blocks := parse(t, "<!-- console: #/nodes | free | 2 cores -->\n![The nodes](images/nodes.png)\n\n<!-- press: Allow -->\n\n'''sh\ntrue\n'''")
	if len(blocks) != 3 || blocks[0].Image != "images/nodes.png" || blocks[0].Text != "#/nodes" || !slices.Equal(blocks[0].Words, []string{"free", "2 cores"}) ||
		blocks[1].Language != Press || blocks[1].Text != "Allow" {
		t.Errorf("%+v", blocks)
	}
	if err := reader(t).Follow(t.Context(), blocks); err == nil || !strings.Contains(err.Error(), "no browser") {
		t.Errorf("without a browser: %v", err)
	}
	if _, err := Parse("<!-- console: #/nodes -->\nprose"); err == nil {
		t.Error("a view without a picture is taken")
	}
}

// Each picture that a page shows is there, small, and made by a page's commands; each that is there is shown.
func TestPictures(t *testing.T) {
	documents, err := Documents("../..")
	if err != nil {
		t.Fatal(err)
	}
	made, shown := map[string]bool{}, map[string]bool{}
	for _, name := range documents {
		text := read(t, name)
		for _, m := range anyPicture.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(m[1], "://") {
				shown[filepath.Join(filepath.Dir(name), m[1])] = true
			}
		}
		blocks, err := Parse(text)
		if err != nil {
			continue // It is no page of the guide, for which TestPages fails.
		}
		for _, b := range blocks {
			if b.Language == Console {
				made[filepath.Join(filepath.Dir(name), b.Image)] = true
			}
		}
	}
	files, err := filepath.Glob("../../docs/images/*")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no pictures", err)
	}
	for _, file := range files {
		if !shown[file] {
			t.Errorf("no page shows %s", file)
		}
	}
	for file := range shown {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, headings, err := PictureHeadings(data); err != nil || len(headings) < 2 || len(data) > MaxPicture {
			t.Errorf("%s: %d bytes, headings %q, %v", file, len(data), headings, err)
		}
		if !made[file] {
			t.Errorf("%s: no page's commands make it", file)
		}
	}
}
