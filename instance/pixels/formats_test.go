package pixels

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// webps are halves(16, 8, red, blue) as Pillow 13.0 writes it, by kind. Nothing in Go writes WebP.
// The first line of "alpha" is transparent.
var webps = map[string]string{
	"lossy":    "UklGRkQAAABXRUJQVlA4IDgAAAAwAgCdASoQAAgAAMASJaACdLoB+AH4gARoAAD+/Suf/9+gm/93m/10S8z/60c//rRlcH9aOb+gAA==",
	"lossless": "UklGRiYAAABXRUJQVlA4TBkAAAAvD8ABAA8Q87//8x8OxILJ/KU7U4jof+QAAA==",
	"alpha": "UklGRmwAAABXRUJQVlA4WAoAAAAQAAAADwAABwAAQUxQSA0AAAABDzD/ERFi/iP6H/z/AFZQOCA4AAAAMAIAnQEqEAAIAADAEiWgAnS6AfgB+IAEaAAA/v0rn//foJv/d5v9" +
		"dEvM/+tHP/60ZXB/Wjm/oAA=",
}

func webpFile(t *testing.T, kind string) []byte {
	t.Helper()
	file, err := base64.StdEncoding.DecodeString(webps[kind])
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func asBMP(t *testing.T, img image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := bmp.Encode(&out, img); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func asTIFF(t *testing.T, img image.Image, compression tiff.CompressionType) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := tiff.Encode(&out, img, &tiff.Options{Compression: compression}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// asGIF writes an image as a frame at a place of a canvas.
func asGIF(t *testing.T, img image.Image, at image.Point, canvas image.Point) []byte {
	t.Helper()
	palette := color.Palette{color.Black, red, blue}
	frame := image.NewPaletted(img.Bounds().Add(at), palette)
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			frame.Set(at.X+x, at.Y+y, img.At(x, y))
		}
	}
	var out bytes.Buffer
	all := gif.GIF{Image: []*image.Paletted{frame}, Delay: []int{0}, Config: image.Config{ColorModel: palette, Width: canvas.X, Height: canvas.Y}}
	if err := gif.EncodeAll(&out, &all); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestEveryFormat(t *testing.T) {
	img := halves(16, 8, red, blue)
	m := maker(t, "16x8", tensor.Uint8, -1, 8, 16, 3)
	for name, file := range map[string][]byte{
		"GIF": asGIF(t, img, image.Pt(0, 0), image.Pt(16, 8)), "BMP": asBMP(t, img),
		"TIFF": asTIFF(t, img, tiff.Uncompressed), "TIFF, deflated": asTIFF(t, img, tiff.Deflate),
		"WebP": webpFile(t, "lossy"), "lossless WebP": webpFile(t, "lossless"), "WebP with transparency": webpFile(t, "alpha"),
	} {
		if !Is(file) {
			t.Errorf("%s is not recognised", name)
		}
		data, err := m.Append(nil, file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, at := range []struct{ x, r, b int }{{2, 255, 0}, {13, 0, 255}} {
			px := data[(5*16+at.x)*3:]
			// A lossy image has its colours nearly.
			if abs(int(px[0])-at.r) > 3 || px[1] > 3 || abs(int(px[2])-at.b) > 3 {
				t.Errorf("%s: the pixel at %d is %v", name, at.x, px[:3])
			}
		}
		if top := data[:3]; name == "WebP with transparency" && !bytes.Equal(top, []byte{0, 0, 0}) {
			t.Errorf("a transparent pixel is %v", top)
		}
	}
	// A GIF's first frame may be a part of its canvas.
	data, err := m.Append(nil, asGIF(t, halves(8, 4, red, blue), image.Pt(8, 4), image.Pt(16, 8)))
	if err != nil || !bytes.Equal(data[:3], []byte{0, 0, 0}) || !bytes.Equal(data[(4*16+8)*3:][:3], []byte{255, 0, 0}) || !bytes.Equal(data[len(data)-3:], []byte{0, 0, 255}) {
		t.Errorf("a frame at 8,4: %v, %v", data, err)
	}
	one := maker(t, "2x2", tensor.Uint8, -1, 2, 2, 1)
	for _, file := range [][]byte{asGIF(t, halves(1, 1, red, blue), image.Point{}, image.Pt(1, 1)), asBMP(t, halves(1, 1, red, blue)), asTIFF(t, halves(1, 1, red, blue), tiff.Deflate)} {
		if data, err := one.Append(nil, file); err != nil || len(data) != 4 {
			t.Errorf("one pixel: %v, %v", data, err)
		}
	}
	for _, numbers := range []string{"BM", "BM and text that is no image at all", "BM\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x28\x00\x00\x00"} {
		if Is([]byte(numbers)) {
			t.Errorf("%q counts as an image", numbers)
		}
	}
}

func abs(n int) int { return max(n, -n) }

// largeWebP is the head of an extended WebP.
func largeWebP(width, height uint32, flags byte) []byte {
	chunk := []byte{flags, 0, 0, 0, byte(width - 1), byte((width - 1) >> 8), byte((width - 1) >> 16), byte(height - 1), byte((height - 1) >> 8), byte((height - 1) >> 16)}
	out := append([]byte("RIFF\xff\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00"), chunk...)
	return append(out, "VP8L\x05\x00\x00\x00\x2f\x00\x00\x00\x00\x00"...)
}

// largeTIFF is the head of a TIFF of one grey strip.
func largeTIFF(width, height uint32) []byte {
	out := []byte("II*\x00\x08\x00\x00\x00\x05\x00")
	for _, e := range [][2]uint32{{256, width}, {257, height}, {258, 8}, {259, 8}, {262, 1}} {
		out = binary.LittleEndian.AppendUint16(out, uint16(e[0]))
		out = binary.LittleEndian.AppendUint16(out, 4)
		out = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(out, 1), e[1])
	}
	return append(out, 0, 0, 0, 0)
}

func TestBombsOfEveryFormat(t *testing.T) {
	large := asBMP(t, image.NewGray(image.Rect(0, 0, 1, 1)))
	binary.LittleEndian.PutUint32(large[18:], 20_000)
	binary.LittleEndian.PutUint32(large[22:], 20_000)
	m := maker(t, "8x8", tensor.FP32, -1, 3, 8, 8)
	for name, c := range map[string]struct {
		file []byte
		why  string
	}{
		"a large GIF":           {append([]byte("GIF89a\x20\x4e\x20\x4e\x00\x00\x00,"), make([]byte, 10)...), "20000x20000 pixels and needs 2288 MB to decode; the limit is 32 MB"},
		"a large BMP":           {large, "20000x20000 pixels"},
		"a large TIFF":          {largeTIFF(20_000, 20_000), "20000x20000 pixels"},
		"a large WebP":          {largeWebP(20_000, 20_000, 0), "20000x20000 pixels"},
		"a lossless WebP":       {append(largeWebP(1600, 900, 0), make([]byte, 200_000)...), "send it smaller"},
		"a long WebP":           {largeWebP(1<<16, 1, 0), "neither side"},
		"a cut TIFF":            {[]byte("II*\x00\x08\x00\x00\x00"), "head cannot be read"},
		"a cut WebP":            {webpFile(t, "lossy")[:40], "the image"},
		"a TIFF without strips": {largeTIFF(8, 8), "cannot be decoded"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := m.Append(nil, c.file)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.why)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%s: it took %d bytes of memory", name, took)
		}
	}
}

// TestFormatsTakeWhatWasReckoned checks the estimates of the decoders' memory.
func TestFormatsTakeWhatWasReckoned(t *testing.T) {
	img := image.NewNRGBA(image.Rect(0, 0, 1000, 700))
	for i := range img.Pix {
		img.Pix[i] = byte(i * i)
	}
	for name, file := range map[string][]byte{
		"BMP": asBMP(t, img), "TIFF": asTIFF(t, img, tiff.Deflate), "a TIFF that is not compressed": asTIFF(t, img, tiff.Uncompressed),
		"GIF": asGIF(t, halves(1000, 700, red, blue), image.Point{}, image.Pt(1001, 701)),
	} {
		f, ok := formatOf(file)
		if !ok {
			t.Fatal(name)
		}
		config, err := f.config(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = decode(file)
		runtime.ReadMemStats(&after)
		took, slack := int64(after.TotalAlloc-before.TotalAlloc), int64(1<<20) // Readers have buffers of their own.
		if need := f.memory(file, config); err != nil || took > need+slack {
			t.Errorf("%s: it took %d bytes of memory, not at most %d: %v", name, took, need, err)
		}
	}
}
