package torchfile

// array is str() or repr() of a tensor, a numpy array or a numpy scalar.
func (p *pyPrinter) array(v Value, repr bool) {
	p.s("<" + v.Kind().String() + ">")
}
