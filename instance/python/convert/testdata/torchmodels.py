"""Writes the models of PyTorch that the tests convert into a directory."""
import os
import sys

os.chdir(sys.argv[1])
sys.path.insert(0, os.getcwd())
with open("nets.py", "w") as file:  # Where a pickled module looks for its class.
    file.write("""
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.linear = torch.nn.Linear(8, 5)

    def forward(self, image):
        x = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(image))), 2)
        return torch.softmax(self.linear(x.mean((2, 3))), 1)

class Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(40, 8)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.score = torch.nn.Linear(8 + 4, 1)

    def forward(self, words, features):
        x = self.layer(self.words(words)).mean(1)
        return {"score": torch.sigmoid(self.score(torch.cat([x, features], 1))), "hidden": x}

class Special(torch.nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)
""")

import torch
from nets import Heads, Net, Special

torch.manual_seed(1)
net, image = Net().eval(), torch.randn(2, 3, 16, 16)
torch.jit.script(net).save("scripted.pt")
torch.save(net, "pickled.pt")
torch.save(net.state_dict(), "weights.pt")
torch.export.save(torch.export.export(net, (image,)), "fixed.pt2")

batch = torch.export.Dim("batch")
inputs = (torch.randint(0, 40, (2, 7)), torch.randn(2, 4))
torch.export.save(torch.export.export(Heads().eval(), inputs, dynamic_shapes=({0: batch}, {0: batch})), "heads.pt2")
torch.export.save(torch.export.export(Special(), (torch.randn(2, 4),), dynamic_shapes=({0: batch},)), "special.pt2")
