package zoo

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
		build: resnet20,
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
		build: vgg16,
	},
	{
		Name: "resnet-50", Aliases: []string{"resnet50"},
		Description: "Image classification: 50 layers in residual bottleneck blocks on 224×224 images",
		TableSize:   "98M", TableGFLOPs: 3.89,
		Note:  "The stride is in a block's first 1×1 convolution, as in the original paper and as the table's GFLOPs say.",
		build: resnet50,
	},
	{
		Name:        "bert-small",
		Description: "Language processing: BERT of 4 layers, 512 wide, with a vocabulary of 30522 on 128 words",
		build:       bertSmall.build,
	},
	{
		Name: "bert-v1", Aliases: []string{"bert"},
		Description: "Language processing: BERT-base with a vocabulary of 21128 on 128 words",
		TableSize:   "391M", TableGFLOPs: 22.2,
		Note:  "The table counts a multiply-add twice here.",
		build: bertBase.build,
	},
}
