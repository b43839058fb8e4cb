// Package wandbfile is the codec of Weights & Biases run files (run-ID.wandb), the log that a run
// leaves on disk and that `wandb sync` uploads. Its entry points are [NewReader] and [NewWriter]; it
// opens no files itself.
//
// # Format
//
// The file begins with seven bytes: ":W&B", 0xBEE1 little endian, and the version 0. After them
// records are framed as in LevelDB's log (doc/log_format.md there): the file, counted from its first
// byte, is a sequence of blocks of 32 KiB, and a record is one FULL chunk or a FIRST, any MIDDLE and a
// LAST one, none of which crosses a block:
//
//	CRC      uint32   CRC-32 (IEEE, not masked: here W&B differs from LevelDB) of type and data
//	length   uint16   bytes of data
//	type     uint8    1 FULL, 2 FIRST, 3 MIDDLE, 4 LAST
//	data     [length]byte
//
// A rest of fewer than seven bytes in a block is filled with zeros. A record's data is a
// wandb_internal.Record (wandb/proto/wandb_internal.proto); the fields used here are
//
//	Record:  1 num, one of {2 history, 3 summary, 12 metric, 17 run, 18 exit, 21 header, 22 footer}
//	Run:     1 run_id, 2 entity, 3 project, 4 config, 6 run_group, 7 job_type, 8 display_name, 9 notes,
//	         10 tags (repeated), 13 host, 17 start_time {1 seconds, 2 nanos}
//	Config:  1 update (repeated item)             Summary: 1 update (repeated item)
//	History: 1 item (repeated), 2 step {1 num}    Exit:    1 exit_code, 2 runtime, 3 not_complete
//	Metric:  1 name, 2 glob_name, 4 step_metric, 6 options {1 step_sync, 2 hidden, 3 defined},
//	         10 expanded_from_glob
//	item:    1 key, 2 nested_key (repeated), 16 value_json
//
// value_json is JSON with one extension, that of Python's json module: the bare words NaN, Infinity
// and -Infinity are numbers. All other records (console output, system statistics, files, artifacts)
// are passed over and counted by their field number.
package wandbfile
