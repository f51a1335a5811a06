"""What a run writes down. (records, tensorboard, meters, console and figures stand; only their tests are wanted.)"""
