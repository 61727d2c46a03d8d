# mypy: disable-error-code="index,no-any-return,assignment,union-attr"
"""An agent of Stable-Baselines3 that learns in train/environment (docs/write-a-policy.md)."""

from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecMonitor
from torch import nn

from rltuned.lab.train.environment import QueueVectorEnv
from scripts.stable_baselines import QueueVecEnv

SLOTS, STEPS = 16, 400_000
queues = QueueVectorEnv(64, cluster="testbed", jobs=64, slots=SLOTS)
COLUMNS = (queues.single_observation_space.shape or (0, 0))[1]


class EachJob(nn.Module):
    """A job's action by its features and their mean over the queue; the value by their sum."""

    latent_dim_pi, latent_dim_vf = SLOTS, 32

    def __init__(self) -> None:
        super().__init__()
        self.job = nn.Sequential(nn.Linear(2 * COLUMNS, 32), nn.Tanh(), nn.Linear(32, 1))
        self.queue = nn.Sequential(nn.Linear(COLUMNS, 32), nn.Tanh())

    def forward_actor(self, seen: torch.Tensor) -> torch.Tensor:
        rows = seen.view(-1, SLOTS, COLUMNS)
        mean = rows.mean(dim=1, keepdim=True).expand_as(rows)
        own: torch.Tensor = self.job(torch.cat([rows, mean], dim=-1))
        return own.squeeze(-1) * rows[..., -1]

    def forward_critic(self, seen: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.queue(seen.view(-1, SLOTS, COLUMNS).sum(dim=1))
        return value

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.forward_actor(seen), self.forward_critic(seen)


class JobPolicy(ActorCriticPolicy):
    mlp_extractor: Any

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = EachJob()

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()  # a job's own number is its action
        self.mlp_extractor.job[-1].weight.data.mul_(0.01)  # it begins as the rule


model = PPO(
    JobPolicy,
    VecMonitor(QueueVecEnv(queues)),
    n_steps=64,
    batch_size=2_048,
    n_epochs=4,
    learning_rate=1e-3,
    policy_kwargs={"log_std_init": -1.0},
    seed=1,
    verbose=1,
)
model.learn(STEPS)
model.save("agent")
