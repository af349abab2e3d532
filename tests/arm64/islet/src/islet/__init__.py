"""What a wheel for 64-bit Arm is tried with."""
