package pixels

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func maker(t *testing.T, form string, kind tensor.Type, shape ...int64) *Maker {
	t.Helper()
	f, err := model.ParseImageForm(form)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(f, []tensor.Info{{Name: "image", Type: kind, Shape: shape}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// halves is an image whose left half has one colour and whose right half another.
func halves(width, height int, left, right color.Color) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			c := left
			if x >= width/2 {
				c = right
			}
			img.Set(x, y, c)
		}
	}
	return img
}

func asPNG(t *testing.T, img image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func asJPEG(t *testing.T, img image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := jpeg.Encode(&out, img, &jpeg.Options{Quality: 100}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

var (
	red  = color.RGBA{255, 0, 0, 255}
	blue = color.RGBA{0, 0, 255, 255}
)

func elements(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

func TestLayoutsAndValues(t *testing.T) {
	img := asPNG(t, halves(2, 1, red, blue))
	for name, c := range map[string]struct {
		form  string
		shape []int64
		want  []float32
	}{
		"channels last":  {"2x1", []int64{-1, 1, 2, 3}, []float32{1, 0, 0, 0, 0, 1}},
		"channels first": {"2x1", []int64{-1, 3, 1, 2}, []float32{1, 0, 0, 0, 0, 1}},
		"open sizes":     {"2x1", []int64{-1, 3, -1, -1}, []float32{1, 0, 0, 0, 0, 1}},
		"bgr":            {"2x1 colour=bgr", []int64{-1, 1, 2, 3}, []float32{0, 0, 1, 1, 0, 0}},
		"range":          {"2x1 range=-1..1", []int64{-1, 1, 2, 3}, []float32{1, -1, -1, -1, -1, 1}},
		"bytes' range":   {"2x1 range=0..255", []int64{-1, 1, 2, 3}, []float32{255, 0, 0, 0, 0, 255}},
		"mean and std":   {"2x1 mean=.5,0,.25 std=.5,1,.25", []int64{-1, 1, 2, 3}, []float32{1, 0, -1, -1, 0, 3}},
		"gray":           {"2x1 range=0..255", []int64{-1, 1, 2, 1}, []float32{76, 29}},
		"gray, flat":     {"2x1 colour=gray range=0..255", []int64{-1, 1, 2}, []float32{76, 29}},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := maker(t, c.form, tensor.FP32, c.shape...).Append(nil, img)
			got := elements(data)
			if err != nil || len(got) != len(c.want) {
				t.Fatalf("got %v, %v; want %v", got, err, c.want)
			}
			for i := range got {
				if math.Abs(float64(got[i]-c.want[i])) > 1e-5 {
					t.Fatalf("got %v, want %v", got, c.want)
				}
			}
		})
	}
}

// TestFit: how images of another form become a square.
func TestFit(t *testing.T) {
	wide := halves(80, 20, red, blue)
	for form, want := range map[string][4][3]byte{ // The middles of left and right, top left, top right.
		"8x8":             {{255, 0, 0}, {0, 0, 255}, {255, 0, 0}, {0, 0, 255}},
		"8x8 fit=crop":    {{255, 0, 0}, {0, 0, 255}, {255, 0, 0}, {0, 0, 255}},
		"8x8 fit=pad":     {{255, 0, 0}, {0, 0, 255}, {0, 0, 0}, {0, 0, 0}},
		"160x160 fit=pad": {{255, 0, 0}, {0, 0, 255}, {0, 0, 0}, {0, 0, 0}},
	} {
		m := maker(t, form, tensor.Uint8, -1, -1, -1, 3)
		for name, file := range map[string][]byte{"png": asPNG(t, wide), "jpeg": asJPEG(t, wide)} {
			data, err := m.Append(nil, file)
			if err != nil || len(data) != m.Row() {
				t.Fatalf("%s %s: %d bytes, %v", form, name, len(data), err)
			}
			w, h := m.form.Width, m.form.Height
			for i, at := range [4]int{h/2*w + w/8, h/2*w + w - 1 - w/8, 0, w - 1} {
				for c, v := range want[i] {
					if got := int(data[3*at+c]); got < int(v)-8 || got > int(v)+8 {
						t.Errorf("%s %s: pixel %d is %v, want %v", form, name, at, data[3*at:3*at+3], want[i])
						break
					}
				}
			}
		}
	}
}

// TestShrinkingTakesTheMean checks that every pixel of a large image counts.
func TestShrinkingTakesTheMean(t *testing.T) {
	stripes := image.NewGray(image.Rect(0, 0, 640, 480))
	for i := range stripes.Pix {
		stripes.Pix[i] = byte(i % 2 * 255)
	}
	data, err := maker(t, "10x10", tensor.Uint8, -1, 10, 10, 1).Append(nil, asPNG(t, stripes))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range data {
		if v < 124 || v > 131 {
			t.Fatalf("black and white stripes become %v, want the mean", data)
		}
	}
}

func TestTransparentIsBlack(t *testing.T) {
	img := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	img.Set(0, 0, color.NRGBA{255, 255, 255, 0})
	data, err := maker(t, "1x1", tensor.Uint8, -1, 1, 1, 3).Append(nil, asPNG(t, img))
	if err != nil || !bytes.Equal(data, []byte{0, 0, 0}) {
		t.Errorf("got %v, %v", data, err)
	}
}

func TestNewRefuses(t *testing.T) {
	square := tensor.Info{Name: "image", Type: tensor.FP32, Shape: []int64{-1, 3, 8, 8}}
	of := func(kind tensor.Type, shape ...int64) []tensor.Info {
		return []tensor.Info{{Name: "image", Type: kind, Shape: shape}}
	}
	for name, c := range map[string]struct {
		form   string
		inputs []tensor.Info
		why    string
	}{
		"two inputs":  {"8x8", []tensor.Info{square, square}, "the model has 2 inputs"},
		"type":        {"8x8", of(tensor.Int64, -1, 3, 8, 8), "FP32 or UINT8"},
		"size":        {"9x8", []tensor.Info{square}, "images of 9x8 need [-1,8,9,C] or [-1,C,8,9]"},
		"rank":        {"8x8", of(tensor.FP32, -1, 784), "images of 8x8 need"},
		"channels":    {"8x8", of(tensor.FP32, -1, 4, 8, 8), "with C 3 or 1"},
		"colour":      {"8x8 colour=gray", []tensor.Info{square}, "3 channels, but colour=gray has another number"},
		"mean":        {"8x8 mean=1,2,3", of(tensor.FP32, -1, 1, 8, 8), "give one number for mean and std"},
		"bytes, mean": {"8x8 mean=1", of(tensor.Uint8, -1, 3, 8, 8), "leave out range, mean and std"},
		"flat":        {"8x8", of(tensor.FP32, -1, 8, 8), "images of 8x8 need"},
	} {
		form, err := model.ParseImageForm(c.form)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(form, c.inputs); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.why)
		}
	}
}

// header is a PNG that claims a size and holds nothing.
func header(width, height uint32, depth, kind, interlaced byte) []byte {
	out := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d")
	chunk := binary.BigEndian.AppendUint32([]byte("IHDR"), width)
	chunk = binary.BigEndian.AppendUint32(chunk, height)
	chunk = append(chunk, depth, kind, 0, 0, interlaced)
	return binary.BigEndian.AppendUint32(append(out, chunk...), crc32.ChecksumIEEE(chunk))
}

// large is the head of a JPEG with one frame header.
func large(marker byte, width, height uint16, factors ...byte) []byte {
	out := []byte{0xff, 0xd8, 0xff, marker, 0, byte(8 + 3*len(factors)), 8, byte(height >> 8), byte(height), byte(width >> 8), byte(width), byte(len(factors))}
	for i, f := range factors {
		out = append(out, byte(i+1), f, 0)
	}
	return append(out, 0xff, 0xda, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 63, 0)
}

// hidden is a progressive JPEG behind a marker that has no length, as restart markers have none. A reader that takes
// the next two bytes for its length, 0xfffe, comes to the head of a smaller image, within a comment.
func hidden(marker byte) []byte {
	const first, second = 0x1000, 0xf800
	out := append([]byte{0xff, 0xd8, 0xff, marker, 0xff, 0xfe, first >> 8, 0}, make([]byte, first-2)...)
	out = append(append(out, 0xff, 0xfe, second>>8, 0), make([]byte, second-2)...)
	copy(out[4+0xfffe:], large(0xc0, 6000, 5000, 0x11)[2:])
	return append(out, large(0xc2, 6000, 5000, 0x11, 0x11, 0x11)[2:]...)
}

// TestBombsTakeNoMemory: a small file that claims a large image is refused before
// it is decoded.
func TestBombsTakeNoMemory(t *testing.T) {
	scans := append(asJPEG(t, halves(8, 8, red, blue))[:0:0], asJPEG(t, halves(8, 8, red, blue))...)
	scans = append(scans, bytes.Repeat([]byte("\xff\xda\x00\x02"), maxScans)...)
	m := maker(t, "8x8", tensor.FP32, -1, 3, 8, 8)
	for name, c := range map[string]struct {
		file []byte
		why  string
	}{
		"nothing":            {nil, "not a JPEG, PNG, GIF, WebP, BMP or TIFF image"},
		"a cut GIF":          {[]byte("GIF89a"), "head cannot be read"},
		"a cut JPEG":         {[]byte("\xff\xd8\xff\xe0"), "head cannot be read"},
		"a cut PNG":          {asPNG(t, halves(64, 64, red, blue))[:60], "cannot be decoded"},
		"a large PNG":        {header(40000, 40000, 8, 2, 0), "40000x40000 pixels"},
		"a long PNG":         {header(1, 1<<20, 8, 0, 0), "neither side"},
		"deep colours":       {header(2100, 2100, 16, 6, 0), "send it smaller"},
		"an interlaced PNG":  {header(2400, 2400, 8, 6, 1), "send it smaller"},
		"a large JPEG":       {large(0xc0, 65000, 65000, 0x22, 0x11, 0x11), "65000x65000 pixels"},
		"a progressive JPEG": {large(0xc2, 3000, 2000, 0x22, 0x11, 0x11), "send it smaller"},
		"many scans":         {scans, "more than 256 scans"},
		"a hidden head":      {hidden(0xd0), "send it smaller"},
		"another one":        {hidden(0), "send it smaller"},
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

// TestLargeImagesTakeWhatWasReckoned checks that decoding and resizing stay near the estimated
// memory.
func TestLargeImagesTakeWhatWasReckoned(t *testing.T) {
	file := asJPEG(t, image.NewYCbCr(image.Rect(0, 0, 4000, 3000), image.YCbCrSubsampleRatio420))
	m := maker(t, "224x224", tensor.FP32, -1, 3, 224, 224)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	data, err := m.Append(nil, file)
	runtime.ReadMemStats(&after)
	if err != nil || len(data) != m.Row() {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > maxMemory {
		t.Errorf("it took %d bytes of memory, more than %d", took, maxMemory)
	}
}

func FuzzAppend(f *testing.F) {
	img := halves(9, 5, red, blue)
	var p, j bytes.Buffer
	if png.Encode(&p, img) != nil || jpeg.Encode(&j, img, nil) != nil {
		f.Fatal("the seeds cannot be encoded")
	}
	f.Add(p.Bytes())
	f.Add(j.Bytes())
	for kind := range webps {
		file, err := base64.StdEncoding.DecodeString(webps[kind])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Add(largeTIFF(9, 5))
	f.Add([]byte("GIF89a\x09\x00\x05\x00\x80\x00\x00\xff\x00\x00\x00\x00\xff,\x00\x00\x00\x00\x09\x00\x05\x00\x00\x02\x06\x84\x8f\xa9\xcb\xed\x0f\x00;"))
	form, _ := model.ParseImageForm("4x4 fit=crop")
	m, err := New(form, []tensor.Info{{Name: "image", Type: tensor.FP32, Shape: []int64{-1, 3, 4, 4}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if data, err := m.Append(nil, file); err == nil && len(data) != m.Row() {
			t.Errorf("a row of %d bytes", len(data))
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	var j bytes.Buffer
	if err := jpeg.Encode(&j, halves(640, 480, red, blue), nil); err != nil {
		b.Fatal(err)
	}
	form, _ := model.ParseImageForm("224x224")
	m, err := New(form, []tensor.Info{{Name: "image", Type: tensor.FP32, Shape: []int64{-1, 3, 224, 224}}})
	if err != nil {
		b.Fatal(err)
	}
	var data []byte
	for b.Loop() {
		if data, err = m.Append(data[:0], j.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
}
