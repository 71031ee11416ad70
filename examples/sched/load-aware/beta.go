package main

import "math"

// beta is the beta distribution of a load between 0 and 1.
type beta struct{ a, b float64 }

// probability returns how probable it is that a load with a mean and a standard deviation is at most a
// threshold, and the distribution if one fits.
func probability(mean, deviation, threshold float64) (p float64, d beta, fits bool) {
	switch {
	case mean == 0 || deviation == 0 && mean <= threshold:
		return 1, d, false
	case deviation == 0 || deviation*deviation >= mean*(1-mean):
		return 0, d, false
	}
	n := mean*(1-mean)/(deviation*deviation) - 1
	d = beta{mean * n, (1 - mean) * n}
	return d.below(threshold), d, true
}

// below returns the probability of a value of at most x: the regularized incomplete beta function.
func (d beta) below(x float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (d.a+1)/(d.a+d.b+2):
		return 1 - beta{d.b, d.a}.tail(1-x) // There the fraction converges faster.
	}
	return d.tail(x)
}

// tail evaluates the continued fraction of the function by Lentz's method.
func (d beta) tail(x float64) float64 {
	lab, _ := math.Lgamma(d.a + d.b)
	la, _ := math.Lgamma(d.a)
	lb, _ := math.Lgamma(d.b)
	front := math.Exp(lab-la-lb+d.a*math.Log(x)+d.b*math.Log1p(-x)) / d.a
	const least = 1e-300
	nonzero := func(v float64) float64 {
		if math.Abs(v) < least {
			return least
		}
		return v
	}
	c, e := 1.0, 1/nonzero(1-(d.a+d.b)*x/(d.a+1))
	f := e
	for m := 1.0; m <= 300; m++ {
		for _, t := range [2]float64{
			m * (d.b - m) * x / ((d.a + 2*m - 1) * (d.a + 2*m)),
			-(d.a + m) * (d.a + d.b + m) * x / ((d.a + 2*m) * (d.a + 2*m + 1)),
		} {
			e = 1 / nonzero(1+t*e)
			c = nonzero(1 + t/c)
			f *= c * e
		}
		if math.Abs(c*e-1) < 1e-12 {
			break
		}
	}
	return min(max(front*f, 0), 1)
}
