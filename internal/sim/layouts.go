package sim

import "math/big"

// Bucket bounds of the programs' histograms, without +Inf.

func ttftBounds() []float64 {
	return []float64{0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400}
}

func e2eBounds() []float64 { return append(ttftBounds(), 600, 1200, 1800, 2400) }

func itlBounds() []float64 {
	return []float64{0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8}
}

func queueBounds(r release) []float64 {
	b := []float64{0}
	if r.has("2026-05-01", "") {
		b = append(b, 0.001, 0.005, 0.01, 0.05)
	}
	b = append(b, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15)
	for v := 20.0; v <= 100; v += 10 {
		b = append(b, v)
	}
	for v := 200.0; v <= 1000; v += 100 {
		b = append(b, v)
	}
	return append(b, 1200, 1400, 1600, 1800, 2000, 2500, 3000)
}

// exponential gives start times the powers of width, each power rounded once as C's pow does: the
// text of the bounds then carries the float noise of the real ones. math.Pow is off by a digit.
func exponential(start, width float64, n int) []float64 {
	b := make([]float64, n)
	power := new(big.Float).SetPrec(512).SetInt64(1)
	w := new(big.Float).SetPrec(512).SetFloat64(width)
	for i := range b {
		v, _ := power.Float64()
		b[i] = start * v
		power.Mul(power, w)
	}
	return b
}

func stageBounds() []float64 { return exponential(0.001, 1.62, 30) }

// tokenBounds are those of the prompt and generation token histograms.
func tokenBounds() []float64 {
	return []float64{100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000,
		12500, 15000, 17500, 20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000, 200000, 300000, 400000,
		600000, 800000, 1000000, 1100000}
}

func transferLatencyBounds() []float64 {
	return []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000}
}

func bootstrapBounds() []float64 {
	return []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500}
}

func transferSpeedBounds() []float64 {
	return []float64{0.1, 0.5, 1, 5, 10, 25, 50, 100, 200, 400}
}

func transferSizeBounds() []float64 { return []float64{1, 5, 10, 50, 100, 500, 1000, 5000, 10000} }

func moveBounds(eviction bool) []float64 {
	var b []float64
	for i := 1; i <= 10; i++ {
		b = append(b, float64(i)/1000)
	}
	b = append(b, 0.02, 0.03, 0.04, 0.05, 0.1, 0.2, 0.5, 1)
	if eviction {
		b = append(b, 2, 5, 10, 30, 60)
	}
	return b
}

func backupBounds() []float64 {
	return []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60}
}

func loadsBounds() []float64 {
	return []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1}
}

func grammarTimeBounds() []float64 {
	return []float64{0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 90, 120, 240}
}

func grammarWalkBounds() []float64 {
	return []float64{0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 90, 120, 240}
}

func grammarCountBounds() []float64 {
	return []float64{0, 1, 2, 5, 10, 20, 30, 40, 60, 80, 100, 120, 140, 160, 180, 200, 300, 400, 500, 700, 1000}
}

func grammarSizeBounds() []float64 {
	return []float64{0, 50, 100, 200, 300, 500, 1000, 2000, 3000, 5000, 10000, 20000, 30000, 50000, 100000}
}

// vLLM V1.

func vllmTTFTBounds() []float64 {
	return []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
}

func vllmITLBounds() []float64 {
	return []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
}

func vllmLatencyBounds() []float64 {
	return []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
}

// oneTwoFive are the bounds 1, 2, 5, 10, ... up to the model's context length.
func oneTwoFive(limit float64) []float64 {
	var b []float64
	for e := 1.0; ; e *= 10 {
		for _, m := range []float64{1, 2, 5} {
			if m*e > limit {
				return b
			}
			b = append(b, m*e)
		}
	}
}

// Dynamo.

func dynamoTTFTBounds() []float64 {
	return []float64{0, 0.0022, 0.0047, 0.01, 0.022, 0.047, 0.1, 0.22, 0.47, 1, 2.2, 4.7, 10, 22, 48, 100, 220, 480}
}

func dynamoITLBounds() []float64 {
	return []float64{0, 0.0019, 0.0035, 0.0067, 0.013, 0.024, 0.045, 0.084, 0.16, 0.3, 0.56, 1.1, 2}
}

func dynamoDurationBounds() []float64 {
	return []float64{0, 1.9, 3.4, 6.3, 12, 22, 40, 75, 140, 260}
}

func dynamoInputBounds() []float64 {
	return []float64{0, 100, 210, 430, 870, 1800, 3600, 7400, 15000, 31000, 63000, 130000}
}

func dynamoOutputBounds() []float64 {
	return []float64{0, 100, 210, 430, 880, 1800, 3700, 7600, 16000, 32000}
}

func componentBounds() []float64 {
	return []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
}

// The gateway's *duration_seconds.
func gatewayBounds() []float64 {
	return []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 45, 60, 90, 120, 180, 240}
}
