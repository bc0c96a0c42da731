package guide

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
)

// MaxPicture is how many bytes a picture of the pages may have.
const MaxPicture = 60 << 10

// keyword is the name of the text in a picture that holds the headings of the view.
const keyword = "Headings"

// EncodePicture returns a picture of a view as a PNG file of at most 256 colours. The file also has the view's
// headings, by which [PictureHeadings] tells whether the view still is as in the picture. Its error says that the
// file would have more than [MaxPicture] bytes.
func EncodePicture(view image.Image, headings []string) ([]byte, error) {
	var file bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&file, reduceColours(view)); err != nil {
		return nil, fmt.Errorf("encode a picture: %w", err)
	}
	// The text is a chunk after the header, which is the first chunk: 8 bytes of signature, and 25 of header.
	const header = 8 + 25
	text := chunk("iTXt", keyword+"\x00\x00\x00\x00\x00"+strings.Join(headings, "\n"))
	out := slices.Insert(file.Bytes(), header, text...)
	if len(out) > MaxPicture {
		return nil, fmt.Errorf("the picture has %d bytes, and at most %d are allowed", len(out), MaxPicture)
	}
	return out, nil
}

// chunk returns a chunk of a PNG file.
func chunk(kind, data string) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	out = append(out, kind+data...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:]))
}

// PictureHeadings returns the size of a file of EncodePicture, and its headings. Its error says that the file is no
// such picture.
func PictureHeadings(file []byte) (size image.Point, headings []string, err error) {
	header, err := png.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return image.Point{}, nil, fmt.Errorf("read a picture: %w", err)
	}
	for rest := file[8:]; len(rest) >= 12; {
		n := int(binary.BigEndian.Uint32(rest))
		if n > len(rest)-12 {
			break
		}
		if text, is := strings.CutPrefix(string(rest[8:8+n]), keyword+"\x00\x00\x00\x00\x00"); is && string(rest[4:8]) == "iTXt" {
			return image.Pt(header.Width, header.Height), strings.Split(text, "\n"), nil
		}
		rest = rest[12+n:]
	}
	return image.Point{}, nil, errors.New("the picture has no headings: it is not from make screenshots")
}

// reduceColours returns an image with at most 256 colours: the most frequent ones, unless they are hardly different
// from more frequent ones.
func reduceColours(of image.Image) *image.Paletted {
	bounds := of.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(of.At(x, y)).(color.RGBA) }
	pixels := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			pixels[at(x, y)]++
		}
	}
	colours := make([]color.RGBA, 0, len(pixels))
	for c := range pixels {
		colours = append(colours, c)
	}
	value := func(c color.RGBA) int { return int(c.R)<<16 | int(c.G)<<8 | int(c.B) }
	slices.SortFunc(colours, func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(pixels[b], pixels[a]), cmp.Compare(value(a), value(b)))
	})
	const different = 3 * 6 * 6 // six steps of each of the three colours, as a squared distance
	var palette color.Palette
	for _, c := range colours {
		if len(palette) < 256 && (len(palette) == 0 || distance(palette[palette.Index(c)].(color.RGBA), c) > different) {
			palette = append(palette, c)
		}
	}
	out := image.NewPaletted(bounds, palette)
	index := make(map[color.RGBA]uint8, len(colours))
	for _, c := range colours {
		index[c] = uint8(palette.Index(c))
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			out.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	return out
}

// distance returns the squared distance of two colours.
func distance(a, b color.RGBA) int {
	r, g, bl := int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B)
	return r*r + g*g + bl*bl
}
