"""What torch asks of a size that may vary, where the answer is about speed or about how a tensor lies.

Each question becomes a condition of the entry: one that was traced at 32 x 40 pixels would serve no picture
on the other side of it. Those here are answered without a question, for all sizes alike.
Seen in torch 2.13.0.
"""
