// Package trace records what happens to the samples of an RL rollout, in the carrier format of slime,
// and sends finished samples to Rollscope. Its entry points are [Tracer.Start] and [NewSender];
// [DecodeBatch] is the receiving side.
//
//	var tracer trace.Tracer // the zero value records
//
//	ctx, span := tracer.Start(ctx, sample.Trace, "generate", trace.A("max_new_tokens", 512))
//	out, err := engine.Generate(ctx, prompt)
//	span.Update(trace.SGLangAttrs(out.MetaInfo)...)
//	span.EndErr(err)
//
// A [Carrier] holds one sample's events; everything that has one is a [Target]. Spans nest through the
// context. A nil Target means the samples of the span around, a nil *Tracer records nothing. No call
// fails: what could not be recorded is counted in [Tracer.Stats].
//
// The formats are specified in FORMAT.md beside the code. The package imports the standard library only.
package trace
