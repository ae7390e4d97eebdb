package embd

import (
	"encoding/binary"
	"math"
)

// f16 and bf16 are rounded to nearest even; overflow gives infinity, subnormals are kept.

func toBF16(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16 | 0x40)
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

func toF16(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, magnitude := uint16(bits>>16&0x8000), math.Float32frombits(bits&0x7fffffff)
	switch {
	case magnitude != magnitude:
		return sign | 0x7e00
	case magnitude >= 65520:
		return sign | 0x7c00
	case magnitude < 0x1p-14: // subnormal: units of 2^-24; 0x1p-14 itself carries into the exponent
		return sign | uint16(math.RoundToEven(float64(magnitude)*0x1p24))
	}
	bits = bits&0x7fffffff - 112<<23
	return sign | uint16((bits+0xfff+bits>>13&1)>>13)
}

func fromF16(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0:
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// appendFloats adds the values as they travel.
func appendFloats(to []byte, wire string, values []float32) []byte {
	for _, x := range values {
		switch wire {
		case "f16":
			to = binary.LittleEndian.AppendUint16(to, toF16(x))
		case "bf16":
			to = binary.LittleEndian.AppendUint16(to, toBF16(x))
		default:
			to = binary.LittleEndian.AppendUint32(to, math.Float32bits(x))
		}
	}
	return to
}

func floatsOf(data []byte, wire string) []float32 {
	if wire != "f16" && wire != "bf16" {
		values := make([]float32, len(data)/4)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		return values
	}
	values := make([]float32, len(data)/2)
	for i := range values {
		h := binary.LittleEndian.Uint16(data[2*i:])
		if wire == "f16" {
			values[i] = fromF16(h)
		} else {
			values[i] = fromBF16(h)
		}
	}
	return values
}
