package planner

// Reason is Dynamo's word for why a loop did what it did, as in its reports and gauges.
type Reason string

// Reasons of the load loop.
const (
	Unset               Reason = "unset"
	Disabled            Reason = "disabled"
	NoFPMData           Reason = "no_fpm_data"
	ScalingInProgress   Reason = "scaling_in_progress"
	WorkerCountMismatch Reason = "worker_count_mismatch"
	InsufficientData    Reason = "insufficient_data"
	NoChange            Reason = "no_change"
	ScaleUp             Reason = "scale_up"
	ScaleDown           Reason = "scale_down"
	CappedByThroughput  Reason = "scale_down_capped_by_throughput"
	Refusal             Reason = "scale_down_refused_consolidation"
)

// Reasons of the throughput loop, beside unset and disabled.
const (
	NoTrafficData   Reason = "no_traffic_data"
	ModelNotReady   Reason = "model_not_ready"
	PartnerNotReady Reason = "partner_not_ready"
	SetLowerBound   Reason = "set_lower_bound"
	Scale           Reason = "scale"
)
