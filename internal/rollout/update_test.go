package rollout

import "flag"

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")
