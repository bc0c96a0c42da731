package zoo

import "github.com/faas-infer/faas-infer/model/onnxpb"

// ssd300 is Liu et al.'s detector on VGG-16: boxes and scores at 8732 anchors of six feature
// maps. The first map is normalised over its channels. The caller suppresses overlapping
// boxes.
func ssd300(n *network) {
	const classes = 91
	x, in := n.input("image", onnxpb.TensorProto_FLOAT, 3, 300, 300), int64(3)
	var maps []string
	for stage, layers := range []int{2, 2, 3, 3, 3} {
		out := min(64<<stage, 512)
		for range layers {
			x = n.relu(n.grouped(x, in, int64(out), 3, 1, 1, 1, true))
			in = int64(out)
		}
		if stage == 3 {
			scale := n.around("norm.scale", 20, 1, 1, in, 1, 1)
			maps = append(maps, n.op("Mul", []string{n.op("LpNormalization", []string{x}, attrInt("axis", 1), attrInt("p", 2)), scale}))
		}
		if stage < 4 { // 75 positions become 38.
			x = n.op("MaxPool", []string{x}, attrInts("kernel_shape", 2, 2), attrInts("strides", 2, 2), attrInt("ceil_mode", 1))
		}
	}
	x = n.maxPool(x, 3, 1, 1)
	x = n.relu(n.convolution(x, 512, 1024, window{kernel: [2]int64{3, 3}, stride: 1, pad: [2]int64{6, 6}, dilation: 6}, 1, true))
	x = n.relu(n.grouped(x, 1024, 1024, 1, 1, 0, 1, true))
	maps, in = append(maps, x), 1024
	channels := []int64{512, 1024}
	for _, extra := range []struct{ middle, out, stride, pad int64 }{{256, 512, 2, 1}, {128, 256, 2, 1}, {128, 256, 1, 0}, {128, 256, 1, 0}} {
		x = n.relu(n.grouped(x, in, extra.middle, 1, 1, 0, 1, true))
		x = n.relu(n.grouped(x, extra.middle, extra.out, 3, extra.stride, extra.pad, 1, true))
		in = extra.out
		maps, channels = append(maps, x), append(channels, in)
	}
	var boxes, scores []string
	for i, x := range maps {
		anchors := []int64{4, 6, 6, 6, 4, 4}[i]
		boxes = append(boxes, n.perAnchor(x, channels[i], anchors, 4, 3))
		scores = append(scores, n.perAnchor(x, channels[i], anchors, classes, 3))
	}
	n.output("boxes", n.concat(1, boxes...), 8732, 4)
	n.output("scores", n.softmax(n.concat(1, scores...)), 8732, classes)
}

// yolo is Jocher et al.'s eighth YOLO in its size x, which Reis et al. describe: 80 classes
// at 8400 positions of 640×640 images. The caller suppresses overlapping boxes.
func yolo(n *network) { detector{n}.build() }

// detector are the blocks of YOLOv8.
type detector struct{ *network }

func (n detector) build() {
	x := n.convNormSwish(n.input("image", onnxpb.TensorProto_FLOAT, 3, 640, 640), 3, 80, 3, 2)
	in := int64(80)
	var maps []string
	for _, stage := range []struct {
		out    int64
		blocks int
	}{{160, 3}, {320, 6}, {640, 6}, {640, 3}} {
		x = n.convNormSwish(x, in, stage.out, 3, 2)
		x = n.split(x, stage.out, stage.out, stage.blocks, true)
		in = stage.out
		maps = append(maps, x)
	}
	deep := n.pyramid(x, 640)
	middle := n.split(n.concat(1, n.double(deep), maps[2]), 1280, 640, 3, false)
	fine := n.split(n.concat(1, n.double(middle), maps[1]), 960, 320, 3, false)
	middle = n.split(n.concat(1, n.convNormSwish(fine, 320, 320, 3, 2), middle), 960, 640, 3, false)
	deep = n.split(n.concat(1, n.convNormSwish(middle, 640, 640, 3, 2), deep), 1280, 640, 3, false)
	n.detect([]string{fine, middle, deep}, []int64{320, 640, 640}, 640)
}

// split is YOLO's block: half of the channels pass, the other half goes through residual
// bottlenecks, and all that come about are joined.
func (n detector) split(x string, in, out int64, blocks int, residual bool) string {
	half := out / 2
	parts := n.ops("Split", 2, []string{n.convNormSwish(x, in, out, 1, 1), n.integers(half, half)}, attrInt("axis", 1))
	for range blocks {
		last := parts[len(parts)-1]
		y := n.convNormSwish(n.convNormSwish(last, half, half, 3, 1), half, half, 3, 1)
		if residual {
			y = n.op("Add", []string{last, y})
		}
		parts = append(parts, y)
	}
	return n.convNormSwish(n.concat(1, parts...), half*int64(len(parts)), out, 1, 1)
}

// pyramid joins a feature map with its maxima over 5, 9 and 13 positions.
func (n detector) pyramid(x string, channels int64) string {
	parts := []string{n.convNormSwish(x, channels, channels/2, 1, 1)}
	for range 3 {
		parts = append(parts, n.maxPool(parts[len(parts)-1], 5, 1, 2))
	}
	return n.convNormSwish(n.concat(1, parts...), 2*channels, channels, 1, 1)
}

// double doubles a feature map's sides.
func (n detector) double(x string) string {
	name := n.next("Resize")
	scales := n.initializer(floats(name+".scales", []float32{1, 1, 2, 2}, 4))
	return n.op("Resize", []string{x, "", scales}, attrString("mode", "nearest"),
		attrString("coordinate_transformation_mode", "asymmetric"), attrString("nearest_mode", "floor"))
}

// bins is the number of bins over which YOLO distributes the distance to each side of a box.
const bins = 16

// detect predicts boxes in pixels and scores at each position.
func (n detector) detect(maps []string, channels []int64, side int64) {
	const classes = 80
	var boxes, scores []string
	all := int64(0)
	for i, x := range maps {
		width := max(bins, channels[0]/4, 4*bins)
		box := n.convNormSwish(n.convNormSwish(x, channels[i], width, 3, 1), width, width, 3, 1)
		box = n.grouped(box, width, 4*bins, 1, 1, 0, 1, true)
		width = max(channels[0], classes)
		score := n.convNormSwish(n.convNormSwish(x, channels[i], width, 3, 1), width, width, 3, 1)
		score = n.grouped(score, width, classes, 1, 1, 0, 1, true)
		cells := (side >> (3 + i)) * (side >> (3 + i))
		all += cells
		boxes = append(boxes, n.op("Reshape", []string{box, n.integers(0, 4*bins, cells)}))
		scores = append(scores, n.op("Reshape", []string{score, n.integers(0, classes, cells)}))
	}
	x := n.op("Reshape", []string{n.concat(2, boxes...), n.integers(0, 4, bins, all)})
	x = n.op("Softmax", []string{n.op("Transpose", []string{x}, attrInts("perm", 0, 2, 1, 3))}, attrInt("axis", 1))
	x = n.op("Reshape", []string{n.grouped(x, bins, 1, 1, 1, 0, 1, false), n.integers(0, 4, all)})
	sides := n.ops("Split", 2, []string{x, n.integers(2, 2)}, attrInt("axis", 1))
	anchors, strides := n.positions(len(maps), side)
	low, high := n.op("Sub", []string{anchors, sides[0]}), n.op("Add", []string{anchors, sides[1]})
	centre := n.op("Mul", []string{n.op("Add", []string{low, high}), n.scalar(0.5)})
	x = n.op("Mul", []string{n.concat(1, centre, n.op("Sub", []string{high, low})), strides})
	n.output("detections", n.concat(1, x, n.op("Sigmoid", []string{n.concat(2, scores...)})), 4+classes, all)
}

// positions are the centres of all cells of some maps, and the cells' sides in pixels.
func (n detector) positions(maps int, side int64) (anchors, strides string) {
	var xs, ys, sizes []float32
	for i := range maps {
		cells := int(side >> (3 + i))
		for y := range cells {
			for x := range cells {
				xs, ys = append(xs, float32(x)+0.5), append(ys, float32(y)+0.5)
				sizes = append(sizes, float32(int(8)<<i))
			}
		}
	}
	all := int64(len(xs))
	return n.initializer(floats("anchors", append(xs, ys...), 1, 2, all)), n.initializer(floats("strides", sizes, 1, 1, all))
}
