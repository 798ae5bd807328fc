"""The currencies of ISO 4217: those in force, and those withdrawn since 2017.

Source: the list of Debian's iso-codes 4.15, and the amendments after it up to number 179
(SIX Financial Information, maintenance agency): ZWG, XCG and XAD came, none of the older went,
since events of the past name the money of their day. XXX (no currency), XTS (for tests), metals
and units of account are left out: they have no minor unit that an amount could be in.
"""

import math
from fractions import Fraction

_LISTED = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN
    BWP BYN BZD CAD CDF CHE CHF CHW CLF CLP CNY COP COU CRC CUC CUP CVE CZK DJF DKK DOP DZD EGP
    ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HRK HTG HUF IDR ILS INR IQD IRR
    ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD
    MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR
    PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SLL SOS SRD SSP STN SVC SYP SZL
    THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST XAD
    XAF XCD XCG XOF XPF YER ZAR ZMW ZWG ZWL
"""
CODES = frozenset(_LISTED.split())

# The listed currencies whose minor unit is not a hundredth, by its decimals.
_OTHERS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
_DIGITS = {code: digits for digits, codes in _OTHERS.items() for code in codes.split()}


# Minor units of a currency turn into those of another by a whole number of 10⁻¹²ths.
RATE_SCALE = 10**12


def conversion_factor(rate: float, *, of: str, to: str) -> int:
    """Returns the exact rate between minor units of two currencies, in units of 10⁻¹².

    Raises:
        ValueError: The rate has more than eight decimals, or is no number that makes sense.
    """
    digits = minor_unit_digits(to) - minor_unit_digits(of)
    rounded = round(Fraction(repr(float(rate))), 8) if math.isfinite(rate) else Fraction(0)
    factor = rounded * Fraction(10) ** digits * RATE_SCALE
    if rounded != Fraction(repr(float(rate))) or not 0 < factor < 2**63:
        raise ValueError(f"the rate of {of} is {rate}: above 0, below 90000, of at most 8 decimals")
    return int(factor)


def minor_unit_digits(code: str) -> int:
    """Returns the number of decimals of a currency's minor unit: 2 for cents."""
    return _DIGITS.get(code, 2)
