import snntorch
import torch


class Spiking(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 12), torch.nn.Linear(12, 2)
        self.neurons, self.out = snntorch.Leaky(beta=0.9), snntorch.Leaky(beta=0.8)

    def forward(self, x):
        hidden, last = self.neurons.reset_mem(), self.out.reset_mem()
        spikes = []
        for step in x:
            spike, hidden = self.neurons(self.first(step), hidden)
            spike, last = self.out(self.second(spike), last)
            spikes.append(spike)
        return torch.stack(spikes), last


def samples():
    return [(torch.randn(5, 3, 6),)]
