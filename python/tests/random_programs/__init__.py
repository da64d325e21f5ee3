"""Random FSDP2 programs: each is run with enable() and without, and must give the same bits.

draw.py draws a program, a plain JSON object. model.py and play.py run it on a rank. control.py sends
programs to ranks that live on from one to the next, and shrinks the ones that fail.
"""
