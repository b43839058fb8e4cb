// Package tfevents is the codec of TensorBoard event files: scalars, and the marks that say where a
// run began again. Its entry points are [NewReader] and [NewWriter]; it opens no files itself.
//
// # Format
//
// A file is a sequence of records, as TensorFlow's core/lib/io/record_writer.h describes them, all
// numbers little endian:
//
//	length        uint64   bytes of payload
//	length CRC    uint32   masked CRC-32C (Castagnoli) of the 8 length bytes
//	payload       [length]byte
//	payload CRC   uint32   masked CRC-32C of the payload
//
// where masked(c) = (c rotated right by 15) + 0xa282ead8. The payload is a tensorflow.Event
// (core/util/event.proto); the fields used here are
//
//	Event:           1 wall_time double (seconds), 2 step int64, 3 file_version string,
//	                 5 summary Summary, 7 session_log SessionLog
//	Summary:         1 value repeated Value
//	Value:           1 tag string, 2 simple_value float, 8 tensor TensorProto, 9 metadata
//	SummaryMetadata: 1 plugin_data { 1 plugin_name string }
//	TensorProto:     1 dtype, 2 shape { 2 dim { 1 size } }, 4 tensor_content bytes, 5 float_val,
//	                 6 double_val, 7 int_val, 10 int64_val, 11 bool_val, 13 half_val (also bfloat16)
//	SessionLog:      1 status (1 = start, 2 = stop, 3 = checkpoint), 3 msg string
//
// The first record of a file carries file_version "brain.Event:2". What else a writer puts there
// (graphs, images, histograms, hyperparameters) is skipped and counted.
//
// Values are passed on as they are: whether NaN is shown, dropped or counted is the caller's policy.
package tfevents
