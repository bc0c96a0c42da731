package zoo

import (
	"fmt"
	"strconv"
	"strings"
)

// architectures are sorted by size, smallest first.
var architectures = []Architecture{
	{
		Name:        "identity",
		Description: "One Identity operator on a float vector of any width, to measure what everything around a model costs",
		build:       identity,
	},
	{
		Name:        "mnist",
		Description: "Number recognition: two strided 5×5 convolutions and a dense layer of 2048 on 28×28 grey images",
		TableSize:   "72k", TableGFLOPs: 0.01,
		Note:  "The table's 72k are 18 thousand weights; the common tutorial networks near its 0.01 GFLOPs have 13 MB, most of it in a wide dense layer. Ours is of that kind, and so gains from batching as they do.",
		build: mnist,
	},
	{
		Name: "textcnn-69", Aliases: []string{"textcnn"},
		Description: "Text classification: sentences of 69 words embedded, convolutions over 3, 4 and 5 words, the maximum over the sentence",
		TableSize:   "11M", TableGFLOPs: 0.53,
		Note:  "At 11M no network over 69 words reaches the table's 0.53 GFLOPs: were all its weights used at every word, it would be 0.2.",
		build: textCNN,
	},
	{
		Name:        "mobilenet",
		Description: "Image classification: MobileNet V1, depthwise separable convolutions on 224×224 images",
		TableSize:   "17M", TableGFLOPs: 0.05,
		Note:  "MobileNet V1 of the table's size takes 0.57 GFLOPs; its 0.05 is that of a network a quarter as wide, which has 2M.",
		build: mobilenet,
	},
	{
		Name:        "yamnet",
		Description: "Sound recognition: 10 s of sound, its mel spectrogram, a MobileNet on 20 overlapping patches, the mean of their scores",
		TableSize:   "17M", TableGFLOPs: 1.60,
		build: yamnet,
	},
	{
		Name: "dssm-2365", Aliases: []string{"dssm"},
		Description: "Question answering by a Deep Structured Semantic Model: two dense towers over vectors of 2365 term weights, compared by their cosine",
		TableSize:   "25M", TableGFLOPs: 0.13,
		Note:  "25M of dense weights, each used once a request, are 0.007 GFLOPs; the table's 0.13 cannot be met at its size.",
		build: dssm,
	},
	{
		Name:        "ssd",
		Description: "Object detection: six feature maps of a MobileNet V1 on 300×300 images, boxes and scores of 91 classes at 1917 anchors",
		TableSize:   "29M", TableGFLOPs: 2.02,
		Note:  "SSD on MobileNet V1 is the usual detector of this size; it takes 1.2 GFLOPs, or 2.5 with a multiply-add counted twice.",
		build: ssd,
	},
	{
		Name: "resnet-20", Aliases: []string{"resnet20"},
		Description: "Image classification: 20 layers in residual blocks on 192×192 images",
		TableSize:   "36M", TableGFLOPs: 1.55,
		Note:  "The well-known ResNet-20 is for 32×32 images and has 1M. Ours has its number of layers in the widths of ResNet-18, which gives the table's size and GFLOPs.",
		build: residuals{side: 192, blocks: [4]int{2, 2, 4, 1}, widen: 1}.build,
	},
	{
		Name: "lstm-2365", Aliases: []string{"lstm"},
		Description: "Question answering: 16 words embedded, read by an LSTM of 1024 cells, sorted into 2365 answers",
		TableSize:   "39M", TableGFLOPs: 0.10,
		build: lstm,
	},
	{
		Name: "vggnet", Aliases: []string{"vgg"},
		Description: "Feature localisation: VGG-16's convolutions on 136×136 images and a dense layer of 384",
		TableSize:   "69M", TableGFLOPs: 5.55,
		Note:  "VGG-16 has 528M and 15.5 GFLOPs. Without its wide dense layers and on images of this side it has the table's size and GFLOPs.",
		build: vgg{side: 136, layers: [5]int{2, 2, 3, 3, 3}, dense: []int64{384}}.build,
	},
	residualNetwork(34),
	{
		Name: "inception-v3", Aliases: []string{"inception", "inceptionv3"},
		Description: "Image classification: Inception-v3, modules of parallel convolutions on 299×299 images",
		Note:        "Without the auxiliary classifier, which only training needs.",
		build:       inception,
	},
	{
		Name: "resnet-50", Aliases: []string{"resnet50"},
		Description: "Image classification: 50 layers in residual bottleneck blocks on 224×224 images",
		TableSize:   "98M", TableGFLOPs: 3.89,
		Note:  "The stride is in a block's first 1×1 convolution, as in the original paper and as the table's GFLOPs say.",
		build: residuals{side: 224, blocks: [4]int{3, 4, 6, 3}, widen: 1, bottleneck: true, early: true}.build,
	},
	{
		Name: "efficientnet-b5", Aliases: []string{"efficientnet"},
		Description: "Image classification: EfficientNet-B5, 39 inverted residual blocks with squeeze and excitation on 456×456 images",
		build:       efficient{side: 456, wide: 1.6, deep: 2.2}.build,
	},
	{
		Name:        "minilm",
		Description: "MiniLM: a BERT of 6 layers for texts of any length up to 512 tokens",
		build:       miniLM.build,
	},
	{
		Name:        "bert-small",
		Description: "Language processing: BERT of 4 layers, 512 wide, with a vocabulary of 30522 on 128 words",
		build:       bertSmall.build,
	},
	{
		Name:        "ssd300",
		Description: "Object detection: SSD on VGG-16 and 300×300 images, boxes and scores of 91 classes at 8732 anchors",
		build:       ssd300,
	},
	residualNetwork(101),
	{
		Name: "yolov8x", Aliases: []string{"yolo"},
		Description: "Object detection: YOLOv8 in its size x, 80 classes at 8400 positions of 640×640 images",
		Note:        "AsyFunc's 131 MB are those of the published file, in float16; in float32 its weights are twice as large.",
		build:       yolo,
	},
	recurrentNetwork(3),
	{
		Name: "bert-v1", Aliases: []string{"bert"},
		Description: "Language processing: BERT-base with a vocabulary of 21128 on 128 words",
		TableSize:   "391M", TableGFLOPs: 22.2,
		Note:  "The table counts a multiply-add twice here.",
		build: bertBase.build,
	},
	vggNetwork(11),
	vggNetwork(16),
	vggNetwork(19),
	wideNetwork(34, 3),
	wideNetwork(50, 3),
	wideNetwork(34, 4),
	wideNetwork(50, 4),
	wideNetwork(34, 5),
	wideNetwork(50, 5),
}

// vggNetwork is one of the VGG paper's, by its number of layers with weights.
func vggNetwork(layers int) Architecture {
	convolutions := map[int][5]int{11: {1, 1, 2, 2, 2}, 16: {2, 2, 3, 3, 3}, 19: {2, 2, 4, 4, 4}}
	return Architecture{
		Name: fmt.Sprintf("vgg-%d", layers), Aliases: []string{fmt.Sprintf("vgg%d", layers)},
		Description: fmt.Sprintf("Image classification: %d convolutions and three wide dense layers on 224×224 images", layers-3),
		build:       vgg{side: 224, layers: convolutions[layers], dense: wide}.build,
	}
}

// residualNetwork is one of the ResNet paper's.
func residualNetwork(layers int) Architecture {
	a := Architecture{
		Name: fmt.Sprintf("resnet-%d", layers), Aliases: []string{fmt.Sprintf("resnet%d", layers)},
		Description: fmt.Sprintf("Image classification: %d layers in residual blocks on 224×224 images", layers),
	}
	r := residuals{side: 224, blocks: [4]int{3, 4, 6, 3}, widen: 1}
	if layers == 101 {
		r.blocks, r.bottleneck = [4]int{3, 4, 23, 3}, true
		a.Description = strings.Replace(a.Description, "residual", "residual bottleneck", 1)
		a.Note = "The stride is in a block's 3×3 convolution, as in most networks since the paper; in the first 1×1 one it takes 7.6 GFLOPs."
	}
	a.build = r.build
	return a
}

// wideNetwork is a ResNet with more channels in every block, as the release of Gillis
// builds it.
func wideNetwork(layers int, widen int64) Architecture {
	return Architecture{
		Name:        fmt.Sprintf("wrn-%d-%d", layers, widen),
		Description: fmt.Sprintf("Image classification: ResNet-%d with %d times as many channels in its blocks, on 224×224 images", layers, widen),
		build:       residuals{side: 224, blocks: [4]int{3, 4, 6, 3}, widen: widen, bottleneck: layers == 50}.build,
	}
}

// recurrentNetwork is a stack of layers of LSTM.
func recurrentNetwork(layers int) Architecture {
	return Architecture{
		Name:        fmt.Sprintf("%s%d", rnnPrefix, layers),
		Description: fmt.Sprintf("Sequences: %d layers of LSTM, 2048 wide, read %d vectors; rnn-N has N layers", layers, rnnLength),
		Note:        "Gillis does not say how many vectors a request has. In its release, a layer on Lambda takes 955 ms, 19 times as long as a dense layer of as many weights; so ours has 20.",
		build:       rnn(layers),
	}
}

const (
	rnnPrefix = "rnn-"
	// maxLayers is the maximum number of layers of an rnn, 125 GiB.
	maxLayers = 1000
)

// parseRecurrent finds the rnn of a name. The list has only one of them.
func parseRecurrent(name string) (Architecture, bool) {
	number, found := strings.CutPrefix(name, rnnPrefix)
	layers, err := strconv.Atoi(number)
	if !found || err != nil || layers < 1 || layers > maxLayers || strconv.Itoa(layers) != number {
		return Architecture{}, false
	}
	return recurrentNetwork(layers), true
}
