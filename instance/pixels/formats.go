package pixels

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/draw"
	"io"
	"math"

	"golang.org/x/image/webp"
)

func isGIF(file []byte) bool {
	return bytes.HasPrefix(file, []byte("GIF87a")) || bytes.HasPrefix(file, []byte("GIF89a"))
}

func isWebP(file []byte) bool {
	return len(file) >= 12 && string(file[:4]) == "RIFF" && string(file[8:12]) == "WEBP"
}

// isBMP checks more than the two letters BM, which numbers may begin with, too: two fields that
// are zero, and the length of the second head.
func isBMP(file []byte) bool {
	if len(file) < 18 || string(file[:2]) != "BM" || binary.LittleEndian.Uint32(file[6:]) != 0 {
		return false
	}
	switch binary.LittleEndian.Uint32(file[14:]) {
	case 12, 40, 52, 56, 64, 108, 124:
		return true
	}
	return false
}

func isTIFF(file []byte) bool {
	return bytes.HasPrefix(file, []byte("II*\x00")) || bytes.HasPrefix(file, []byte("MM\x00*"))
}

// gifMemory is the memory of a GIF's first frame: its bytes, the same again if it is interlaced,
// and the canvas that it may be a part of.
func gifMemory(_ []byte, config image.Config) int64 { return pixels(config) * (1 + 1 + 4) }

// bmpMemory is a BMP's memory.
func bmpMemory(_ []byte, config image.Config) int64 { return pixels(config) * bytesEach(config) }

// tiffMemory is a TIFF's memory: the image, and one block of it while that is decompressed. A
// block's buffer may take eight bytes a pixel and half of what append has set aside. A block may be
// the whole image, or a tile of up to 1024x1024 pixels in a smaller one.
func tiffMemory(_ []byte, config image.Config) int64 {
	const block = 2 * 8
	return pixels(config)*bytesEach(config) + max(pixels(config), 1<<20)*block
}

// decodeWebP decodes a WebP. Its lossy images use BT.601's narrow range: black is 16 and white
// 235. Go's type for such images, which the decoder returns, means the full range. Without the
// conversion, every image would lose contrast.
func decodeWebP(r io.Reader) (image.Image, error) {
	img, err := webp.Decode(r)
	if err != nil {
		return nil, err
	}
	var planes *image.YCbCr
	switch i := img.(type) {
	case *image.YCbCr:
		planes = i
	case *image.NYCbCrA:
		planes = &i.YCbCr
	default:
		return img, nil
	}
	widen(planes.Y, 16, 0, 219)
	widen(planes.Cb, 128, 128, 224)
	widen(planes.Cr, 128, 128, 224)
	return img, nil
}

// widen scales values that have a number of steps around from to 255 steps around to.
func widen(values []byte, from, to, steps float64) {
	var table [256]byte
	for v := range table {
		table[v] = byte(math.Round(min(255, max(0, (float64(v)-from)*255/steps+to))))
	}
	for i, v := range values {
		values[i] = table[v]
	}
}

// webpMemory is a WebP's memory. A lossy image is one of YCbCr. Lossless pixels, which may also hold
// the transparency of a lossy image, take four bytes, the same again for a transform, and groups of
// Huffman trees. The decoder takes at most 2600 groups, and one for every 16 pixels. A group takes
// 3 KiB for its tables and at most 50 KiB for its nodes; a byte of the file makes at most 256 bytes
// of nodes, as each node's code has at least half a bit.
func webpMemory(file []byte, config image.Config) int64 {
	const tables, nodes, perByte = 3 << 10, 50 << 10, 256
	need := pixels(config) * 3
	if losslessWebP(file) {
		groups := min(2600, pixels(config)/16+1)
		need += pixels(config)*8 + groups*tables + min(groups*nodes, int64(len(file))*perByte)
	}
	return need
}

// losslessWebP reports whether a WebP has a lossless part.
func losslessWebP(file []byte) bool {
	for at := 12; at+8 <= len(file); {
		switch string(file[at : at+4]) {
		case "VP8L", "ALPH":
			return true
		case "VP8 ":
			return false
		}
		size := int64(binary.LittleEndian.Uint32(file[at+4:]))
		if size += size & 1; size > int64(len(file)) {
			return false
		}
		at += 8 + int(size)
	}
	return false
}

// onCanvas puts an image that is a part of a larger canvas, as a GIF's first frame may be, to its
// place there.
func onCanvas(img image.Image, config image.Config) image.Image {
	whole := image.Rect(0, 0, config.Width, config.Height)
	if img.Bounds() == whole {
		return img
	}
	canvas := image.NewRGBA(whole)
	draw.Draw(canvas, img.Bounds(), img, img.Bounds().Min, draw.Src)
	return canvas
}
